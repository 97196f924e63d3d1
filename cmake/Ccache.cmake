# Compilations are remembered by ccache where it is installed, for all clones on the machine: paths below the project count
# by what they are relative to it, and objects name files so (-ffile-prefix-map; gdb finds them from the top of the project).
# Objects for gcov name their own folder: not remembered.
set(DTP_CCACHE AUTO CACHE STRING "Compile through ccache: AUTO, ON or OFF")
set_property(CACHE DTP_CCACHE PROPERTY STRINGS AUTO ON OFF)
find_program(CCACHE_PROGRAM ccache)
if(DTP_CCACHE STREQUAL "ON" AND NOT CCACHE_PROGRAM)
    message(FATAL_ERROR "DTP_CCACHE=ON but no ccache was found (Debian: ccache)")
endif()
if(CCACHE_PROGRAM AND NOT DTP_CCACHE STREQUAL "OFF" AND NOT DTP_COVERAGE)
    foreach(language C CXX CUDA)
        if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
            set(CMAKE_${language}_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
        endif()
    endforeach()
endif()
# ccache gives the compiler relative paths, without it they are absolute.
file(RELATIVE_PATH up ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=;-ffile-prefix-map=${up}=>")
