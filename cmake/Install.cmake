# libdtp, the library that a C program links: one shared library over all folders, its headers, a
# CMake package (find_package(dtp), target dtp::dtp) and a pkg-config file. docs/tensors.md shows a program.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(WRITE ${CMAKE_BINARY_DIR}/libdtp_anchor.c
    "/* libdtp consists of the static libraries of the folders. */\ntypedef int dtp_anchor;\n")
add_library(dtp SHARED ${CMAKE_BINARY_DIR}/libdtp_anchor.c)
add_library(dtp::dtp ALIAS dtp)
set(parts dtp_planner dtp_dtensor dtp_executor dtp_cost_models dtp_interop dtp_spmd dtp_core)
target_link_libraries(dtp PRIVATE ${parts})
list(JOIN parts "," parts)
set_target_properties(dtp PROPERTIES LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${parts}")
# Only names of the public headers leave the library.
set(exports ${CMAKE_CURRENT_LIST_DIR}/libdtp.map)
target_link_options(dtp PRIVATE LINKER:--version-script=${exports})
set_target_properties(dtp PROPERTIES LINK_DEPENDS ${exports})
target_include_directories(dtp INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/dtp>)
set_target_properties(dtp PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

install(TARGETS dtp EXPORT dtp-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS dtplan dtrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT dtp-targets NAMESPACE dtp:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dtp)
install(DIRECTORY include/dtp/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dtp FILES_MATCHING PATTERN "*.h")
# Headers that only the files of one folder use stay at home, and so do those that include one.
install(DIRECTORY core spmd interop cost_models planner executor DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dtp
    FILES_MATCHING PATTERN "*.h" PATTERN "*internal.h" EXCLUDE PATTERN "glpk_fence.h" EXCLUDE
    PATTERN "executor/cpu" EXCLUDE PATTERN "executor/ref" EXCLUDE PATTERN "spmd/lower/passes" EXCLUDE
    PATTERN "edge_costs.h" EXCLUDE PATTERN "redistribution_costs.h" EXCLUDE
    PATTERN "redistribute_bound.h" EXCLUDE)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dtp-config.cmake.in
    ${CMAKE_BINARY_DIR}/dtp-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dtp)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/dtp-config-version.cmake
    COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH DTP_PC_TO_PREFIX /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
configure_file(${CMAKE_CURRENT_LIST_DIR}/dtp.pc.in ${CMAKE_BINARY_DIR}/dtp.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/dtp-config.cmake ${CMAKE_BINARY_DIR}/dtp-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dtp)
install(FILES ${CMAKE_BINARY_DIR}/dtp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
