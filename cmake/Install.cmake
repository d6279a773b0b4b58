# Installs the C++ library, its public headers and a package that find_package(tensorshelf) reads.
# The Python module is a component of its own (python/CMakeLists.txt): only the wheel has it.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tensorshelf)

install(TARGETS tensorshelf EXPORT tensorshelfTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp")
install(EXPORT tensorshelfTargets NAMESPACE tensorshelf:: DESTINATION ${package_dir})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tensorshelfConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tensorshelfConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tensorshelfConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tensorshelfConfig.cmake
              ${PROJECT_BINARY_DIR}/tensorshelfConfigVersion.cmake
        DESTINATION ${package_dir})
