# find_package(commonhold) gives commonhold::commonhold, and commonhold::static, which needs no library of Commonhold's when
# the program runs.
include(CMakeFindDependencyMacro)
find_dependency(Threads)

if(NOT TARGET commonhold::commonhold)
  add_library(commonhold::commonhold SHARED IMPORTED)
  set_target_properties(commonhold::commonhold PROPERTIES
    IMPORTED_LOCATION "@LIBDIR@/libcommonhold.so"
    INTERFACE_INCLUDE_DIRECTORIES "@PREFIX@/include")
  add_library(commonhold::static STATIC IMPORTED)
  set_target_properties(commonhold::static PROPERTIES
    IMPORTED_LOCATION "@LIBDIR@/libcommonhold.a"
    INTERFACE_INCLUDE_DIRECTORIES "@PREFIX@/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;Threads::Threads;m;dl")
endif()
