// SPDX-License-Identifier: Apache-2.0
// What a pod weighs in the embedded server, part by part: bytes that are allocated (not what the process has taken from the kernel), per pod.
//   memory_bench [PODS, 20000]
#include <fmt/format.h>
#include <malloc.h>

#include <cstdlib>
#include <latch>
#include <string>

#include "apiserver/local_api.h"
#include "apiserver/registry.h"
#include "apiserver/registry_bytes.h"
#include "kube/cache.h"

using namespace fairlead;
using namespace fairlead::apiserver;

namespace {

double allocated() {
  const struct mallinfo2 now = ::mallinfo2();
  return static_cast<double>(now.uordblks + now.hblkhd);
}

// As an operator writes it, 1.5 kB; the same as bench/peer_probe.cpp.
kube::Json pod(int number) {
  std::vector<kube::Json> environment;
  for (int i = 0; i < 20; ++i) environment.push_back(kube::Json::object({{"name", fmt::format("VARIABLE_{}", i)}, {"value", fmt::format("a value of usual length {}", i)}}));
  return kube::Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Pod"},
       {"metadata", kube::Json::object({{"name", fmt::format("pod-{}", number)}, {"labels", kube::Json::object({{"app", "bench"}})}})},
       {"spec", kube::Json::object({{"schedulerName", "nobody"},
                                    {"containers", kube::Json::array({kube::Json::object({{"name", "main"},
                                                                                          {"image", "slurm"},
                                                                                          {"command", kube::Json::array({"sleep", "1000"})},
                                                                                          {"env", kube::Json::array(std::move(environment))},
                                                                                          {"resources", kube::Json::object({{"requests", kube::Json::object({{"cpu", "100m"}, {"memory", "64Mi"}})}})}})})}})}});
}

// Hides what the engine keeps, so that a cache must hold copies: as over a wire.
class CopyingApi final : public kube::KubeApi {
 public:
  explicit CopyingApi(kube::KubeApi& api) : api_(api) {}
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override {
    auto out = api_.list(resource, space, options);
    if (out) out->at_rest.clear();
    return out;
  }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override { return api_.watch(resource, space, options); }
  Result<kube::Json> get(const kube::Resource&, const kube::ObjectKey&) override { return no(); }
  Result<kube::Json> create(const kube::Resource&, const kube::Json&) override { return no(); }
  Result<kube::Json> update(const kube::Resource&, const kube::Json&) override { return no(); }
  Result<kube::Json> update_status(const kube::Resource&, const kube::Json&) override { return no(); }
  Result<kube::Json> patch(const kube::Resource&, const kube::ObjectKey&, kube::PatchType, const kube::Json&, const std::string&) override { return no(); }
  Result<kube::Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const kube::Json&) override { return no(); }
  Result<void> remove(const kube::Resource&, const kube::ObjectKey&, const kube::DeleteOptions&) override { return fail(Code::Unsupported, "only lists"); }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override {
    return fail(Code::Unsupported, "only lists");
  }

 private:
  static Result<kube::Json> no() { return fail(Code::Unsupported, "only lists"); }
  kube::KubeApi& api_;
};

double cache_of(kube::KubeApi& api, int pods) {
  const double before = allocated();
  std::latch synced(1);
  const kube::Informer informer(api, kube::resources::pods, "", {}, [&] { synced.count_down(); });
  synced.wait();
  INVARIANT(informer.cache().get({"default", "pod-0"}).has_value());
  ::malloc_trim(0);
  return (allocated() - before) / pods;
}

void measure(const std::string& name, CommonParts common, int pods) {
  const ManualClock clock{Instant(std::chrono::hours(500'000))};
  const double before = allocated();
  const std::unique_ptr<Store> store = make_memory_store({}, std::move(common));
  auto opened = Registry::open(*store, clock, {});
  INVARIANT(opened.has_value());
  Registry& registry = **opened;
  const auto kind = registry.kinds()->find("", "v1", "pods");
  double shown = 0;
  for (int i = 0; i < pods; ++i) {
    registry.create({.validation = FieldValidation::Strict, .user_agent = "bench/1"}, *kind, "default", pod(i), [&](Result<Written> done) {
      INVARIANT(done.has_value());
      shown = static_cast<double>(done->object.bytes->size());
    });
  }
  fmt::print("{}: the object {:.0f} bytes as JSON, the store {:.0f}", name, shown, (allocated() - before) / pods);
  const auto api = make_local_api(registry);
  CopyingApi copying(*api);
  fmt::print(", a cache of copies {:.0f}", cache_of(copying, pods));
  fmt::print(", a cache that holds what the store holds {:.0f}\n", cache_of(*api, pods));
}

}  // namespace

int main(int argc, char** argv) {
  const int pods = argc > 1 ? std::atoi(argv[1]) : 20'000;
  fmt::print("bytes per pod, {} pods\n", pods);
  measure("values whole", {}, pods);
  measure("common parts shared", common_parts, pods);
  return 0;
}
