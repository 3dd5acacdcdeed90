# SPDX-License-Identifier: Apache-2.0
# fairlead_csi_proto: messages and services of gRPC of CSI and of the registration with a kubelet, generated from src/csi/*.proto.
# Who names it in LIBS includes "csi/csi.grpc.pb.h" (or csi.pb.h). Built only where something links it.

find_program(FAIRLEAD_PROTOC protoc REQUIRED)
find_program(FAIRLEAD_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
# Only asked whether they are there: what pkg-config lists for gRPC is 45 libraries of Abseil, which every program would then name as its own.
find_package(PkgConfig REQUIRED)
pkg_check_modules(FAIRLEAD_GRPC REQUIRED protobuf grpc++_unsecure absl_synchronization)

# The path below the folder is the one below src/: what is included says where it comes from. No part of it is called src, whose headers clang-tidy reads.
set(csi_folder ${CMAKE_BINARY_DIR}/protocols)
set(csi_protos ${CMAKE_SOURCE_DIR}/src/csi/csi.proto ${CMAKE_SOURCE_DIR}/src/csi/registration.proto)
set(csi_files)
foreach(name csi registration)
  list(APPEND csi_files csi/${name}.pb.cc csi/${name}.pb.h csi/${name}.grpc.pb.cc csi/${name}.grpc.pb.h)
endforeach()
list(TRANSFORM csi_files PREPEND ${csi_folder}/)
file(MAKE_DIRECTORY ${csi_folder})
add_custom_command(OUTPUT ${csi_files}
  COMMAND ${FAIRLEAD_PROTOC} --proto_path=${CMAKE_SOURCE_DIR}/src --cpp_out=${csi_folder} --grpc_out=${csi_folder} --plugin=protoc-gen-grpc=${FAIRLEAD_GRPC_PLUGIN} ${csi_protos}
  DEPENDS ${csi_protos} ${FAIRLEAD_PROTOC} ${FAIRLEAD_GRPC_PLUGIN}
  COMMENT "Generating the protocols of CSI" VERBATIM)

add_library(fairlead_csi_proto STATIC EXCLUDE_FROM_ALL ${csi_files})
target_include_directories(fairlead_csi_proto SYSTEM PUBLIC ${csi_folder})
# gRPC without TLS: the protocol is spoken over a Unix socket. It must not meet grpc++ in one program. Abseil's locks stand in inline code of gRPC's headers.
target_link_libraries(fairlead_csi_proto PUBLIC grpc++_unsecure grpc_unsecure gpr absl_synchronization protobuf Threads::Threads)
# Not the project's warnings: the code is not ours. Its sanitizers all the same, or a message that outlives its owner goes unseen; not UBSan, which has nothing to find here and costs half as much again.
target_compile_options(fairlead_csi_proto PRIVATE -w)
foreach(kind IN LISTS FAIRLEAD_SANITIZE)
  if(NOT kind STREQUAL "undefined")
    target_compile_options(fairlead_csi_proto PRIVATE -fsanitize=${kind} -fno-omit-frame-pointer)
  endif()
endforeach()
set_target_properties(fairlead_csi_proto PROPERTIES UNITY_BUILD OFF CXX_CLANG_TIDY "")
