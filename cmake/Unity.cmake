# Compiles small sources a few at a time: most of what each costs is the headers that it includes.
# Not with ccache, which knows each file by itself; and so both ways of building stay tried.
if(CCACHE_PROGRAM)
  set(unity_default OFF)
else()
  set(unity_default ON)
endif()
option(TENSORSHELF_UNITY "Compile groups of sources as one" ${unity_default})

# All sources of `target` that match `pattern`, in so many groups. Two of one group share their
# unnamed namespaces.
function(tensorshelf_unity target pattern groups)
  if(NOT TENSORSHELF_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX ${pattern})
  string(MAKE_C_IDENTIFIER ${pattern} name)
  set(number 0)
  foreach(source IN LISTS sources)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${number})
    math(EXPR number "(${number} + 1) % ${groups}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
