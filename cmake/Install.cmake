# What a C or C++ program links (docs/decisions/0031-public-boundary.md): libdtp, the runtime, and libdtp_planner, which alone links GLPK;
# the headers of include/dtp; a CMake package (find_package(dtp), targets dtp::dtp and dtp::planner) and a pkg-config file for each.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# dtp_shared(<target> <export name> <static library>...): a shared library of whole static ones. What it exports, the public headers say.
file(WRITE ${CMAKE_BINARY_DIR}/anchor.c "/* A shared library consists of static ones. */\ntypedef int dtp_anchor;\n")
function(dtp_shared name export)
    add_library(${name} SHARED ${CMAKE_BINARY_DIR}/anchor.c)
    add_library(dtp::${export} ALIAS ${name})
    target_link_libraries(${name} PRIVATE ${ARGN})
    list(JOIN ARGN "," parts)
    set_target_properties(${name} PROPERTIES LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${parts}" EXPORT_NAME ${export}
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
    target_link_libraries(${name} INTERFACE m) # the headers' users compute
    target_include_directories(${name} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    install(TARGETS ${name} EXPORT dtp-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

set(runtime dtp_cost_models dtp_interop dtp_spmd dtp_core)
dtp_shared(dtp dtp dtp_dtensor dtp_executor ${runtime})
set_target_properties(dtp PROPERTIES INSTALL_RPATH "$ORIGIN/dtp") # modules of devices
# The planner has its own copy of what it uses below itself, without state and not exported: names that libdtp hides stay hidden.
dtp_shared(dtp_planner_shared planner dtp_planner)
target_link_libraries(dtp_planner_shared PUBLIC dtp)
set_target_properties(dtp_planner_shared PROPERTIES OUTPUT_NAME dtp_planner)
foreach(part ${runtime})
    target_link_options(dtp_planner_shared PRIVATE LINKER:--exclude-libs,lib${part}.a)
endforeach()

# The component tools is what a wheel has (pyproject.toml): programs, models, machines, manual pages.
install(TARGETS dtplan dtrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
file(GLOB models CONFIGURE_DEPENDS models/*.json)
install(FILES ${models} interop/python/dtp_torch_bench.py DESTINATION ${CMAKE_INSTALL_DATADIR}/dtp COMPONENT tools)
install(DIRECTORY models/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/dtp COMPONENT tools FILES_MATCHING PATTERN "*.json")
# Manual pages and what bash completes, as the tools write them; of a wheel they belong to the environment.
set(help_prefix "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}")
if(DTP_WHEEL)
    set(help_prefix ${SKBUILD_DATA_DIR})
endif()
function(dtp_install_help tool path)
    install(CODE "set(file \"${help_prefix}/${path}\")
        file(WRITE \${file} \"\")
        execute_process(COMMAND $<TARGET_FILE:${tool}> help ${ARGN} OUTPUT_FILE \${file} COMMAND_ERROR_IS_FATAL ANY)"
        COMPONENT tools)
endfunction()
foreach(tool dtplan dtrun)
    dtp_install_help(${tool} ${CMAKE_INSTALL_MANDIR}/man1/${tool}.1 --man)
    dtp_install_help(${tool} ${CMAKE_INSTALL_DATADIR}/bash-completion/completions/${tool} --completion)
endforeach()
file(STRINGS tools/options.def rows REGEX "^COMMAND")
foreach(row ${rows})
    if(row MATCHES "^COMMAND.[A-Z_]+, ([a-z]+), [a-z_]+, \"([a-z-]+)\"")
        dtp_install_help(${CMAKE_MATCH_1} ${CMAKE_INSTALL_MANDIR}/man1/${CMAKE_MATCH_1}-${CMAKE_MATCH_2}.1
            --man ${CMAKE_MATCH_2})
    endif()
endforeach()
# The Python package (docs/python.md). A wheel has it at its root, and OpenBLAS, which dtrun opens by name, beside dtrun.
install(DIRECTORY interop/python/dtplan DESTINATION ${CMAKE_INSTALL_DATADIR}/dtp FILES_MATCHING PATTERN "*.py" PATTERN py.typed
    PATTERN __pycache__ EXCLUDE)
if(DTP_WHEEL)
    find_library(DTP_OPENBLAS_LIBRARY NAMES libopenblas.so.0 HINTS ${OPENBLAS_LIBRARY_DIRS} REQUIRED)
    file(REAL_PATH ${DTP_OPENBLAS_LIBRARY} openblas)
    install(FILES ${openblas} DESTINATION ${CMAKE_INSTALL_LIBDIR}/dtp RENAME libopenblas.so.0 COMPONENT wheel)
endif()
# Tools find models, machines and the bench of PyTorch beside themselves, in the build folder as where they are installed.
if(IS_SYMLINK ${CMAKE_BINARY_DIR}/share/dtp)
    file(REMOVE ${CMAKE_BINARY_DIR}/share/dtp) # as older builds have it
endif()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/dtp)
foreach(model ${models})
    get_filename_component(name ${model} NAME)
    file(CREATE_LINK ${model} ${CMAKE_BINARY_DIR}/share/dtp/${name} SYMBOLIC)
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models/machines ${CMAKE_BINARY_DIR}/share/dtp/machines SYMBOLIC)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/interop/python/dtp_torch_bench.py
    ${CMAKE_BINARY_DIR}/share/dtp/dtp_torch_bench.py SYMBOLIC)
install(EXPORT dtp-targets NAMESPACE dtp:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dtp)
install(DIRECTORY include/dtp/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dtp FILES_MATCHING PATTERN "*.h")

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dtp-config.cmake.in
    ${CMAKE_BINARY_DIR}/dtp-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dtp)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/dtp-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/dtp-config.cmake ${CMAKE_BINARY_DIR}/dtp-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dtp)
file(RELATIVE_PATH DTP_PC_TO_PREFIX /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
foreach(name dtp dtp-planner)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
