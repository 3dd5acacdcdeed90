// SPDX-License-Identifier: Apache-2.0
#include "csi/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "csi/registration.grpc.pb.h"

namespace fairlead::csi {
namespace {

using namespace std::chrono_literals;

constexpr const char* kVersion = "1.12.0";  // of CSI
constexpr std::size_t longest_socket = 107;  // sun_path, with its zero
constexpr int most_threads = 64;             // a call has one; more are answered RESOURCE_EXHAUSTED

class IdentityService final : public wire::Identity::Service {
 public:
  IdentityService(bool controller, std::function<bool()> ready) : controller_(controller), ready_(std::move(ready)) {}
  Status GetPluginInfo(grpc::ServerContext*, const wire::GetPluginInfoRequest*, wire::GetPluginInfoResponse* response) override {
    response->set_name(kDriver);
    response->set_vendor_version(FAIRLEAD_VERSION);
    return Status::OK;
  }
  Status GetPluginCapabilities(grpc::ServerContext*, const wire::GetPluginCapabilitiesRequest*, wire::GetPluginCapabilitiesResponse* response) override {
    using Kind = wire::PluginCapability::Service;
    if (controller_) response->add_capabilities()->mutable_service()->set_type(Kind::CONTROLLER_SERVICE);
    response->add_capabilities()->mutable_service()->set_type(Kind::VOLUME_ACCESSIBILITY_CONSTRAINTS);
    response->add_capabilities()->mutable_volume_expansion()->set_type(wire::PluginCapability::VolumeExpansion::ONLINE);
    return Status::OK;
  }
  Status Probe(grpc::ServerContext*, const wire::ProbeRequest*, wire::ProbeResponse* response) override {
    response->mutable_ready()->set_value(!ready_ || ready_());
    return Status::OK;
  }

 private:
  const bool controller_;
  const std::function<bool()> ready_;
};

class RegistrationService final : public pluginregistration::Registration::Service {
 public:
  explicit RegistrationService(std::string socket) : socket_(std::move(socket)) {}
  Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*, pluginregistration::PluginInfo* response) override {
    response->set_type("CSIPlugin");
    response->set_name(kDriver);
    response->set_endpoint(socket_);
    response->add_supported_versions(kVersion);
    return Status::OK;
  }
  // One that could not is asked again by the kubelet itself.
  Status NotifyRegistrationStatus(grpc::ServerContext*, const pluginregistration::RegistrationStatus* request, pluginregistration::RegistrationStatusResponse*) override {
    if (request->plugin_registered()) log_info("the kubelet knows the driver", {{"driver", kDriver}});
    else log_error("the kubelet does not take the driver, and tries again", {{"driver", kDriver}, {"socket", socket_}, {"why", request->error().substr(0, 1000)}});
    return Status::OK;
  }

 private:
  const std::string socket_;
};

class GrpcServer final : public Server {
 public:
  ~GrpcServer() override {
    // The lock is held until the socket is gone: gRPC removes whatever has its name.
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + 5s);
    server_.reset();
  }
  Fd lock_;
  std::vector<std::unique_ptr<grpc::Service>> own_;  // services that go with it
  std::unique_ptr<grpc::Server> server_;
};

// `services`: those of others. A live socket would be replaced without a word: who has the lock has the socket.
Result<std::unique_ptr<Server>> serve(const std::string& socket, std::vector<std::unique_ptr<grpc::Service>> own, const std::vector<grpc::Service*>& services) {
  auto out = std::make_unique<GrpcServer>();
  const std::string lock = socket + ".lock";
  out->lock_ = Fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!out->lock_) return fail_errno(errno, "open " + lock);
  if (::flock(out->lock_.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? fail(Code::Conflict, fmt::format("another driver serves {}", socket)) : fail_errno(errno, "lock " + lock);
  out->own_ = std::move(own);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  for (const auto& one : out->own_) builder.RegisterService(one.get());
  for (grpc::Service* one : services) builder.RegisterService(one);
  grpc::ResourceQuota quota("csi");
  quota.SetMaxThreads(most_threads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  const mode_t before = ::umask(0077);
  out->server_ = builder.BuildAndStart();
  ::umask(before);
  if (!out->server_) return fail(Code::Unavailable, fmt::format("{} cannot be listened at: is its folder there?", socket));
  return out;
}

// Of CSI's services and of the kubelet's.
std::vector<const google::protobuf::ServiceDescriptor*> service_descriptors() {
  std::vector<const google::protobuf::ServiceDescriptor*> out;
  for (const auto* file : {wire::GetPluginInfoRequest::descriptor()->file(), pluginregistration::InfoRequest::descriptor()->file()})
    for (int i = 0; i < file->service_count(); ++i) out.push_back(file->service(i));
  return out;
}

}  // namespace

Result<std::string> socket_of(const std::string& endpoint) {
  std::string path = endpoint;
  for (const char* const scheme : {"unix://", "unix:"})
    if (path.starts_with(scheme)) {
      path = path.substr(std::string_view(scheme).size());
      break;
    }
  if (!path.starts_with('/')) return fail(Code::Invalid, fmt::format("{}: unix:///PATH is expected", endpoint));
  if (path.size() > longest_socket) return fail(Code::Invalid, fmt::format("{}: the path of a socket has {} bytes at most", endpoint, longest_socket));
  return path;
}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  INVARIANT(options.controller != nullptr || options.node != nullptr);
  std::vector<grpc::Service*> services;
  if (options.controller != nullptr) services.push_back(options.controller);
  if (options.node != nullptr) services.push_back(options.node);
  std::vector<std::unique_ptr<grpc::Service>> own;
  own.push_back(std::make_unique<IdentityService>(options.controller != nullptr, std::move(options.ready)));
  return serve(options.socket, std::move(own), services);
}

Result<std::unique_ptr<Server>> Server::enrol(const Registration& registration) {
  const auto socket = socket_of(fmt::format("{}/{}-reg.sock", registration.folder, kDriver));
  if (!socket) return std::unexpected(socket.error());
  if (!exists(registration.folder)) return fail(Code::NotFound, fmt::format("there is no folder {}: a kubelet makes it in its --root-dir", registration.folder));
  std::vector<std::unique_ptr<grpc::Service>> own;
  own.push_back(std::make_unique<RegistrationService>(registration.socket));
  return serve(*socket, std::move(own), {});
}

std::vector<std::string> methods() {
  std::vector<std::string> out;
  for (const auto* service : service_descriptors())
    for (int i = 0; i < service->method_count(); ++i)
      if (!service->method(i)->server_streaming()) out.push_back(fmt::format("{}/{}", service->name(), service->method(i)->name()));
  return out;
}

Result<Answer> call(const std::string& socket, const std::string& method, const std::string& request, std::chrono::milliseconds limit) {
  namespace protobuf = google::protobuf;
  const protobuf::MethodDescriptor* found = nullptr;
  for (const auto* service : service_descriptors())
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* one = service->method(i);
      if (!one->server_streaming() && (one->name() == method || one->service()->name() + "/" + one->name() == method)) found = one;
    }
  if (found == nullptr) return fail(Code::NotFound, fmt::format("CSI has no method {}", method));
  auto* factory = protobuf::MessageFactory::generated_factory();
  const std::unique_ptr<protobuf::Message> in(factory->GetPrototype(found->input_type())->New()), out(factory->GetPrototype(found->output_type())->New());
  if (const auto read = protobuf::util::JsonStringToMessage(request.empty() ? "{}" : request, in.get()); !read.ok()) return fail(Code::Invalid, fmt::format("{}: {}", found->input_type()->name(), std::string(read.message())));
  const auto channel = grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials());
  const auto deadline = std::chrono::system_clock::now() + limit;
  if (!channel->WaitForConnected(std::min(deadline, std::chrono::system_clock::now() + 10s))) return fail(Code::Unavailable, fmt::format("no driver answers at {}", socket));
  grpc::TemplatedGenericStub<protobuf::Message, protobuf::Message> stub(channel);
  grpc::ClientContext context;
  context.set_deadline(deadline);
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto reader = stub.PrepareUnaryCall(&context, fmt::format("/{}/{}", found->service()->full_name(), found->name()), *in, &queue);
  reader->StartCall();
  int tag = 0;
  reader->Finish(out.get(), &status, &tag);
  void* got = nullptr;
  bool ok = false;
  queue.Next(&got, &ok);
  Answer answer{.code = status.error_code(), .message = status.error_message(), .body = {}};
  if (!status.ok()) return answer;
  protobuf::util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  if (const auto printed = protobuf::util::MessageToJsonString(*out, &answer.body, print); !printed.ok()) return fail(Code::Internal, std::string(printed.message()));
  return answer;
}

}  // namespace fairlead::csi
