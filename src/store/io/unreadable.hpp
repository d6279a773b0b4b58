// Whether an error of a read says that the place is bad: then its other copy serves, and a chunk
// is damaged as one whose checksum fails. Such a sector is what a power cut in mid-write leaves.
#pragma once

namespace tensorshelf {

class Error;

// Errc::io of the medium itself: EIO, ENODATA (a sector that the drive gave up), EBADMSG, EUCLEAN,
// EILSEQ, EREMOTEIO, EHWPOISON, or fewer bytes than there should be. Not what the process or the
// machine lacked (EMFILE, ENOMEM, ...): those say nothing about the place and may pass.
bool is_unreadable(const Error& error) noexcept;

// Whether it says that the place lies beyond the end of its medium (Errc::truncated), or of what
// was known of it (Errc::corrupt): a writer elsewhere may have made it shorter since.
bool is_cut_off(const Error& error) noexcept;

}  // namespace tensorshelf
