// Recovery on media that lose and refuse: a page of which one copy cannot be read, a flush that
// failed whose pages stay visible, a rival that opened the shelf meanwhile, a writer that does not
// wait for its readers.
#include <cerrno>

#include <tensorshelf/error.hpp>

#include "catch.hpp"
#include "store/unreadable.hpp"

using namespace tensorshelf;

TEST_CASE("which errors of a read speak of the place") {
  struct Row {
    Errc code;
    int os_error;
    bool unreadable;
  };
  //                            code           errno       unreadable
  const auto row = GENERATE(Row{Errc::io, EIO, true},        //
                            Row{Errc::io, ENODATA, true},    //
                            Row{Errc::io, EBADMSG, true},    //
                            Row{Errc::io, EUCLEAN, true},    //
                            Row{Errc::io, EILSEQ, true},     //
                            Row{Errc::io, EREMOTEIO, true},  //
                            Row{Errc::io, EHWPOISON, true},  //
                            Row{Errc::io, 0, true},          // a short read
                            Row{Errc::io, ENOMEM, false},    //
                            Row{Errc::io, EMFILE, false},    //
                            Row{Errc::io, EBADF, false},     //
                            Row{Errc::io, EINTR, false},     //
                            Row{Errc::corrupt, EIO, false},  //
                            Row{Errc::truncated, 0, false});
  CAPTURE(row.os_error);
  REQUIRE(is_unreadable(Error(row.code, "a read failed", "", row.os_error)) == row.unreadable);
}
