# The Debian package of ./dev package: all that is installed. dpkg-shlibdeps names the libraries; OpenBLAS, which dtrun opens by name, and
# mpirun, without which only --comm sim runs, are named here.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME dtplan)
set(CPACK_PACKAGE_CONTACT "the developers of dtplan")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL OFF)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "dtplan chooses by an integer program how every tensor of a model is laid out over
the devices. dtrun runs the plan on CPU ranks and prints predicted beside measured.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libopenblas0-openmp | libopenblas0-pthread")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
include(CPack)
