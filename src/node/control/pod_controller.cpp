// SPDX-License-Identifier: Apache-2.0
#include "node/control/pod_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "api/volume.h"
#include "base/files.h"
#include "base/log.h"
#include "kube/object.h"
#include "kube/pod_claims.h"
#include "kube/selector.h"
#include "node/cdi_files.h"
#include "node/checks.h"
#include "node/images.h"
#include "node/oci_runtime.h"
#include "node/plan/container_spec.h"
#include "node/plan/pod_status.h"
#include "node/plan/refusal.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;

const kube::Resource persistent_volumes{.group = "", .version = "v1", .plural = "persistentvolumes", .kind = "PersistentVolume", .namespaced = false};
constexpr auto volume_refresh = 5s;  // how long a changed ConfigMap may stay unseen in a volume
constexpr auto look_again = 10s;     // in case something died without a word

const Json* container_named(const Json& pod, const std::string& name) {
  for (const char* list : {"initContainers", "containers"})
    for (const Json& container : pod["spec"][list].items())
      if (container["name"].string() == name) return &container;
  return nullptr;
}

bool has_object_volumes(const Json& pod) {
  const auto& volumes = pod["spec"]["volumes"].items();
  return std::any_of(volumes.begin(), volumes.end(), [](const Json& volume) { return made_of_objects(volume); });
}

bool has_claims(const Json& pod) {
  const auto& volumes = pod["spec"]["volumes"].items();
  return std::any_of(volumes.begin(), volumes.end(), [](const Json& volume) { return volume["persistentVolumeClaim"].is_object() || kube::is_ephemeral(volume); });
}

std::string first_address(const std::string& list) { return list.substr(0, list.find(',')); }

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.items()) out.push_back(item.string());
  return out;
}

// What the API knows of this attempt of the container: an earlier agent of this node wrote it.
Prober::Told told_of(const Json& pod, const std::string& container, const std::string& attempt_id) {
  for (const char* list : {"containerStatuses", "initContainerStatuses"})
    for (const Json& status : pod["status"][list].items())
      if (status["name"].string() == container && status["containerID"].string().ends_with("://" + attempt_id)) return {.started = status["started"].boolean(), .ready = status["ready"].boolean()};
  return {};
}

}  // namespace

struct PodController::Memory {
  std::mutex mutex;
  struct Container {
    std::optional<Trouble> trouble;
    std::optional<Stop> stop;
    std::string stopping;  // the attempt that `stop` is about
    std::string probed;    // the attempt that the prober watches
  };
  std::map<std::string, Container> containers;  // under mutex: hooks end on other threads
  // The rest belongs to the thread that reconciles the pod.
  std::optional<Trouble> sandbox_trouble;
  Json reported;
  std::int64_t reported_version = 0;  // of the object that our last report made
  std::optional<Instant> accepted;
  std::chrono::nanoseconds refreshed{};
  bool refusal_told = false;
  std::string eviction;
};

PodController::PodController(Ports ports)
    : ports_(std::move(ports)),
      volumes_(ports_.config.node_dir + "/pods", ports_.config.volumes_dir),
      tokens_(ports_.api, ports_.clock),
      prober_(ports_.runtime, ports_.clock, [this](const std::string& attempt_id) { container_ended(attempt_id); }) {}

std::vector<kube::Controller::Source> PodController::sources() const {
  const std::string node = ports_.config.node_name;
  return {{.resource = kube::resources::pods, .space = "", .keys = [node](const kube::Change& change) -> std::vector<kube::ObjectKey> {
             if (change.object()["spec"]["nodeName"].string() != node) return {};
             return {kube::key_of(change.object())};
           }}};
}

void PodController::start(const kube::Caches& caches) {
  pods_ = &caches.of(kube::resources::pods);
  auto uids = ports_.runtime.list();
  if (!uids) {
    log_error("pods on this node cannot be listed", {{"reason", uids.error().message}});
    return;
  }
  for (const std::string& uid : *uids) {
    auto seen = ports_.runtime.look(uid);
    if (!seen) {
      log_warn("a pod's record cannot be read", {{"uid", uid}, {"reason", seen.error().message}});
      // Without a record there is nothing to adopt.
      if (seen.error().code == Code::NotFound) (void)ports_.runtime.forget(uid);
      continue;
    }
    const kube::ObjectKey key{seen->record.space, seen->record.name};
    remember(uid, key);
    for (const auto& [name, container] : seen->containers) {
      if (!container.latest) continue;
      if (container.latest->running()) log_info("container adopted", {{"pod", key.text()}, {"container", name}});
      const std::lock_guard lock(mutex_);
      attempts_[container.latest->id] = key;
    }
    ports_.wake(key);
  }
}

std::vector<kube::ObjectKey> PodController::known_pods() const {
  const std::lock_guard lock(mutex_);
  std::vector<kube::ObjectKey> out;
  for (const auto& [uid, key] : on_disk_) out.push_back(key);
  return out;
}

void PodController::container_ended(const std::string& attempt_id) {
  std::optional<kube::ObjectKey> key;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = attempts_.find(attempt_id); it != attempts_.end()) key = it->second;
  }
  if (key) ports_.wake(*key);
}

std::shared_ptr<PodController::Memory> PodController::memory_of(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  auto& memory = memories_[uid];
  if (!memory) memory = std::make_shared<Memory>();
  return memory;
}

void PodController::remember(const std::string& uid, const kube::ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  on_disk_[uid] = key;
}

void PodController::forget(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  if (const auto it = memories_.find(uid); it != memories_.end()) {
    const std::lock_guard inner(it->second->mutex);
    for (const auto& [name, container] : it->second->containers) prober_.forget(container.probed);
  }
  memories_.erase(uid);
  tokens_.forget(uid);
  if (const auto it = on_disk_.find(uid); it != on_disk_.end()) {
    const kube::ObjectKey key = it->second;
    on_disk_.erase(it);
    if (std::none_of(on_disk_.begin(), on_disk_.end(), [&](const auto& item) { return item.second == key; }))
      std::erase_if(attempts_, [&](const auto& item) { return item.second == key; });
  }
}

Result<Json> PodController::fetch(const kube::Resource& resource, const std::string& space, const std::string& name, const char* what, bool fresh) {
  const std::string key = fmt::format("{}/{}/{}", resource.plural, space, name);
  const auto now = ports_.clock.monotonic();
  if (!fresh) {
    const std::lock_guard lock(mutex_);
    if (const auto it = fetched_.find(key); it != fetched_.end() && now - it->second.at < volume_refresh / 2) return it->second.object;
  }
  auto object = ports_.api.get(resource, {space, name});
  if (!object) {
    if (object.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("{} \"{}\" not found", what, name));
    return pass(std::move(object.error()), fmt::format("read {} \"{}\"", what, name));
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(fetched_, [&](const auto& item) { return now - item.second.at > std::chrono::minutes(1); });
  fetched_[key] = {.object = *object, .at = now};
  return object;
}

VolumeSources PodController::sources_for(const Json& pod, const std::string& ip) {
  const std::string space = kube::space_of(pod);
  VolumeSources out;
  out.objects.config_map = [this, space](const std::string& name) { return fetch(kube::resources::config_maps, space, name, "configmap", true); };
  out.objects.secret = [this, space](const std::string& name) { return fetch(kube::resources::secrets, space, name, "secret", true); };
  out.claim = [this, space](const std::string& name) { return fetch(kube::resources::claims, space, name, "persistentvolumeclaim", true); };
  out.volume = [this](const std::string& name) { return fetch(persistent_volumes, "", name, "persistentvolume", true); };
  out.node = [this] { return fetch(kube::resources::nodes, "", ports_.config.node_name, "node", false); };
  out.attachment = [this](const std::string& volume) { return ports_.api.get(api::kAttachments, {"", api::attachment_name(volume, ports_.config.node_name)}); };
  out.objects.pod_ip = pod["spec"]["hostNetwork"].boolean() ? ports_.config.node_ips() : ip;
  out.objects.host_ip = ports_.config.node_ips();
  out.objects.node_name = ports_.config.node_name;
  out.objects.node_cpu = ports_.node_cpu;
  out.objects.node_memory = ports_.node_memory;
  out.objects.node_storage = ports_.node_storage;
  out.objects.services = service_environment(pod);
  out.token = [this, pod](const std::string& audience, std::int64_t seconds) { return tokens_.token(pod, audience, seconds); };
  return out;
}

std::vector<std::pair<std::string, std::string>> PodController::service_environment(const Json& pod) const {
  const auto services = ports_.services ? ports_.services() : std::vector<Json>();
  auto out = service_variables(services, kube::space_of(pod), pod["spec"]["enableServiceLinks"].boolean(true));
  if (std::any_of(out.begin(), out.end(), [](const auto& item) { return item.first == "KUBERNETES_SERVICE_HOST"; })) return out;
  // There is no address for the API as a service: programs in the cluster are told the one that this node uses.
  std::string host = ports_.config.api_server;
  if (const auto at = host.find("://"); at != std::string::npos) host.erase(0, at + 3);
  host = host.substr(0, host.find('/'));
  const auto colon = host.rfind(':');
  const bool has_port = colon != std::string::npos && host.find(']', colon) == std::string::npos;
  std::string port = has_port ? host.substr(colon + 1) : "443";
  if (has_port) host.resize(colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  out.emplace_back("KUBERNETES_SERVICE_HOST", host);
  out.emplace_back("KUBERNETES_SERVICE_PORT", port);
  out.emplace_back("KUBERNETES_SERVICE_PORT_HTTPS", port);
  return out;
}

Result<PodSeen> PodController::observe(const Json& pod, Memory& memory) {
  PodSeen seen;
  seen.pod = pod;
  seen.host_ip = ports_.config.node_ips();
  seen.refusal = refusal_of(pod);
  seen.sandbox_trouble = memory.sandbox_trouble;
  seen.eviction = memory.eviction;
  if (!memory.accepted) memory.accepted = ports_.clock.now();
  seen.accepted = *memory.accepted;
  auto here = ports_.runtime.look(kube::uid_of(pod));
  if (!here && here.error().code != Code::NotFound) return std::unexpected(std::move(here.error()));
  if (here) {
    seen.on_disk = true;
    seen.accepted = here->record.accepted;
    // A sandbox counts once all that containers need is there: whoever made it may have died in between.
    if (here->sandbox && read_file(etc_folder(kube::uid_of(pod)) + "/sandbox", 4_KiB).value_or("") == here->sandbox->id) {
      seen.sandbox = here->sandbox->id;
      seen.ip = pod["spec"]["hostNetwork"].boolean() ? ports_.config.node_ips() : here->sandbox->ip;
    }
  }
  const std::lock_guard lock(memory.mutex);
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : pod["spec"][list].items()) {
      const std::string& name = container["name"].string();
      ContainerSeen& one = seen.containers[name];
      Memory::Container& kept = memory.containers[name];
      if (here) {
        one.latest = here->containers[name].latest;
        one.previous = here->containers[name].previous;
      }
      one.trouble = kept.trouble;
      const bool running = one.latest && one.latest->running();
      if (running && (list == std::string_view("containers") || is_sidecar(container))) {
        if (kept.probed != one.latest->id) {
          prober_.forget(kept.probed);
          kept.probed = one.latest->id;
          prober_.watch(one.latest->id, {.pod_uid = kube::uid_of(pod), .container = name, .ip = first_address(seen.ip)}, probes_of(container), told_of(pod, name, one.latest->id), one.latest->started.value_or(ports_.clock.now()));
        }
        const ProbeHealth health = prober_.health(one.latest->id);
        one.ready = health.ready;
        one.started = health.started;
        one.failed_liveness = health.failed;
        one.failed_grace = health.failed_grace;
      } else if (!running && !kept.probed.empty()) {
        prober_.forget(kept.probed);
        kept.probed.clear();
      }
      if (kept.stop && (!running || kept.stopping != one.latest->id)) kept.stop.reset();
      one.stop = kept.stop;
    }
  }
  return seen;
}

// Pods of this name that are on this node and are not the one of the API: killed without grace, for nobody can read their end any more.
Result<void> PodController::remove_strangers(const kube::ObjectKey& key, const std::string& keep_uid) {
  std::vector<std::string> strangers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [uid, its_key] : on_disk_)
      if (its_key == key && uid != keep_uid) strangers.push_back(uid);
  }
  for (const std::string& uid : strangers) {
    log_info("pod is gone from the API: removed here", {{"pod", key.text()}, {"uid", uid}});
    if (auto gone = ports_.runtime.forget(uid); !gone) return pass(std::move(gone.error()), "remove pod " + key.text());
    forget(uid);
  }
  return {};
}

Result<kube::Next> PodController::reconcile(const kube::ObjectKey& key) {
  auto pod = pods_->get(key);
  if (pod && (*pod)["spec"]["nodeName"].string() != ports_.config.node_name) pod.reset();
  if (auto removed = remove_strangers(key, pod ? kube::uid_of(*pod) : ""); !removed) return std::unexpected(std::move(removed.error()));
  if (!pod) return kube::Next{};
  const std::string uid = kube::uid_of(*pod);
  const auto memory = memory_of(uid);
  // Each round acts and looks again, so that a pod is brought up in one go. The bound is far above what any pod needs.
  for (int round = 0; round < 64; ++round) {
    auto seen = observe(*pod, *memory);
    if (!seen) return pass(std::move(seen.error()), "look at pod " + key.text());
    const PodPlan plan = plan_pod(*seen, ports_.clock.now());
    if (!seen->refusal.empty() && !memory->refusal_told) {
      ports_.events.tell(*pod, Events::Type::Warning, "Unsupported", seen->refusal);
      memory->refusal_told = true;
    }
    const bool leaving =
        std::any_of(plan.actions.begin(), plan.actions.end(), [](const Action& action) { return std::holds_alternative<ConfirmDeletion>(action); });
    if (plan.actions.empty() || leaving)
      if (auto reported = report(*pod, plan.status, *memory); !reported && reported.error().code != Code::NotFound)
        return std::unexpected(std::move(reported.error()));
    if (plan.actions.empty()) {
      if (memory->eviction.empty() && plan.status["phase"].string() == "Running") {
        memory->eviction = volumes_.over_limit(
            *pod, fmt::format("{}/logs/{}_{}_{}", ports_.config.node_dir, kube::space_of(*pod), kube::name_of(*pod), kube::uid_of(*pod)));
        if (!memory->eviction.empty()) {
          ports_.events.tell(*pod, Events::Type::Warning, "Evicted", memory->eviction);
          continue;
        }
      }
      auto again = std::chrono::nanoseconds(look_again);
      const bool alive = std::any_of(seen->containers.begin(), seen->containers.end(),
                                     [](const auto& item) { return item.second.latest && item.second.latest->running(); });
      if (alive && has_claims(*pod)) {
        again = volume_refresh;
        // It runs on as it is; an event of the same words is told once.
        if (auto grown = volumes_.grow(*pod); !grown) ports_.events.tell(*pod, Events::Type::Warning, "VolumeResizeFailed", grown.error().message);
      }
      if (alive && has_object_volumes(*pod)) {
        again = volume_refresh;
        if (ports_.clock.monotonic() - memory->refreshed >= volume_refresh) {
          auto sources = sources_for(*pod, seen->ip);
          const std::string space = kube::space_of(*pod);
          sources.objects.config_map = [this, space](const std::string& name) {
            return fetch(kube::resources::config_maps, space, name, "configmap", false);
          };
          sources.objects.secret = [this, space](const std::string& name) { return fetch(kube::resources::secrets, space, name, "secret", false); };
          // What is mounted stays as it is while its object cannot be read.
          if (auto refreshed = volumes_.refresh(*pod, sources); !refreshed && refreshed.error().code != Code::Unavailable)
            ports_.events.tell(*pod, Events::Type::Warning, "FailedMount", refreshed.error().message);
          memory->refreshed = ports_.clock.monotonic();
        }
      }
      if (plan.look_again_at)
        again = std::clamp<std::chrono::nanoseconds>(*plan.look_again_at - ports_.clock.now(), std::chrono::milliseconds(1), again);
      return kube::Next{again};
    }
    for (const Action& action : plan.actions) {
      auto done = apply(action, *pod, *seen, memory);
      if (done) continue;
      (void)report(*pod, plan.status, *memory);
      return pass(std::move(done.error()), "pod " + key.text());
    }
    if (leaving) {
      forget(uid);
      return kube::Next{};
    }
  }
  return kube::Next{std::chrono::milliseconds(100)};
}

Result<void> PodController::report(const Json& pod, const Json& status, Memory& memory) {
  if (status.is_null()) return {};
  if (status == memory.reported) {
    // Someone else may have changed it since (the node was thought dead): what we see wins. Compared only where the API server fills in nothing of
    // its own.
    const bool newer = std::strtoll(kube::version_of(pod).c_str(), nullptr, 10) > memory.reported_version;
    const Json holder = Json::object({{"status", status}});
    const Json *theirs = kube::find_condition(pod, "Ready"), *ours = kube::find_condition(holder, "Ready");
    const bool same = pod["status"]["phase"] == status["phase"] && (theirs == nullptr) == (ours == nullptr) &&
                      (ours == nullptr || (*theirs)["status"] == (*ours)["status"]);
    if (!newer || same) return {};
  } else if (memory.reported.is_null() && status == pod["status"]) {
    memory.reported = status;
    memory.reported_version = std::strtoll(kube::version_of(pod).c_str(), nullptr, 10);
    return {};
  }
  auto done = ports_.api.patch(kube::resources::pods, kube::key_of(pod), kube::PatchType::Strategic, status_patch(pod, status), "status");
  if (!done) {
    if (done.error().code == Code::NotFound) return std::unexpected(std::move(done.error()));
    return pass(std::move(done.error()), "report status of " + kube::key_of(pod).text());
  }
  memory.reported = status;
  memory.reported_version = std::strtoll(kube::version_of(*done).c_str(), nullptr, 10);
  return {};
}

Result<void> PodController::apply(const Action& action, const Json& pod, const PodSeen& seen, const std::shared_ptr<Memory>& memory) {
  const std::string& uid = kube::uid_of(pod);
  if (std::holds_alternative<EnsureSandbox>(action)) return ensure_sandbox(pod, *memory);
  if (const auto* start = std::get_if<StartContainer>(&action)) return start_container(*start, pod, seen, *memory);
  if (const auto* stop = std::get_if<BeginStop>(&action)) {
    begin_stop(*stop, pod, seen, memory);
    return {};
  }
  const auto send = [&](const std::string& name, int number, bool Stop::* flag) -> Result<void> {
    auto sent = ports_.runtime.signal(uid, name, number);
    if (!sent && sent.error().code != Code::NotFound) return sent;
    const std::lock_guard lock(memory->mutex);
    auto& stop = memory->containers[name].stop;
    if (stop) (*stop).*flag = true;
    return {};
  };
  if (const auto* term = std::get_if<SendStopSignal>(&action)) return send(term->name, SIGTERM, &Stop::signalled);
  if (const auto* kill = std::get_if<Kill>(&action)) return send(kill->name, SIGKILL, &Stop::killed);
  if (std::holds_alternative<ReleaseSandbox>(action)) return ports_.runtime.release_sandbox(uid);
  if (std::holds_alternative<Forget>(action)) return ports_.runtime.forget(uid);
  auto removed = ports_.api.remove(kube::resources::pods, kube::key_of(pod), {.grace_seconds = 0, .uid = uid, .resource_version = {}});
  // Gone, or already another pod of this name: both are what was asked for.
  if (!removed && removed.error().code != Code::NotFound && removed.error().code != Code::Conflict)
    return pass(std::move(removed.error()), "confirm deletion");
  return {};
}

Result<void> PodController::ensure_sandbox(const Json& pod, Memory& memory) {
  const std::string& uid = kube::uid_of(pod);
  const kube::ObjectKey key = kube::key_of(pod);
  const auto trouble = [&](const char* reason, const std::string& message) -> Result<void> {
    log_warn("pod cannot be prepared", {{"pod", key.text()}, {"reason", message}});
    ports_.events.tell(pod, Events::Type::Warning, reason, message);
    memory.sandbox_trouble = Trouble{.reason = reason, .message = message, .retry_at = ports_.clock.now() + 2s};
    return {};
  };
  auto record = ports_.runtime.accept({.uid = uid, .space = key.space, .name = key.name, .accepted = *memory.accepted});
  if (!record) return pass(std::move(record.error()), "write the pod down");
  remember(uid, key);
  const Json& spec = pod["spec"];
  const bool host_network = spec["hostNetwork"].boolean();
  auto sandbox = ports_.runtime.ensure_sandbox({.pod_uid = uid,
                                                .hostname = pod_hostname(pod, ports_.config.cluster_domain).substr(0, 64),
                                                .host_network = host_network,
                                                .host_ipc = spec["hostIPC"].boolean(),
                                                .share_processes = spec["shareProcessNamespace"].boolean() && !spec["hostPID"].boolean(),
                                                .limits = pod_limits(pod, 32768)});
  if (!sandbox) return trouble("FailedCreatePodSandBox", sandbox.error().message);
  const std::string ip = host_network ? ports_.config.node_ips() : sandbox->ip;
  if (auto prepared = volumes_.prepare(pod, sources_for(pod, ip)); !prepared) {
    // The sandbox is made again with the next try: without its volumes no container may start.
    const std::string message = prepared.error().message;
    if (auto released = ports_.runtime.release_sandbox(uid); !released) return released;
    return trouble("FailedMount", message);
  }
  const EtcFiles etc = make_etc_files(pod, ip, ports_.config.node_name,
                                      {.server = ports_.dns_server, .domain = ports_.config.cluster_domain, .node_resolv = ports_.node_resolv});
  const std::string folder = etc_folder(uid);
  if (auto made = make_dirs(folder); !made) return made;
  for (const auto& [name, text] : {std::pair("hosts", &etc.hosts), std::pair("hostname", &etc.hostname), std::pair("resolv.conf", &etc.resolv)})
    if (auto written = write_file_atomically(folder + "/" + name, *text, 0644); !written) return written;
  if (auto written = write_file_atomically(folder + "/sandbox", sandbox->id, 0600); !written) return written;
  memory.sandbox_trouble.reset();
  memory.refreshed = ports_.clock.monotonic();
  return {};
}

Result<void> PodController::start_container(const StartContainer& action, const Json& pod, const PodSeen& seen, Memory& memory) {
  const std::string& uid = kube::uid_of(pod);
  const Json* container = container_named(pod, action.name);
  INVARIANT(container != nullptr);
  const auto trouble = [&](const std::string& reason, const std::string& message, std::chrono::seconds pause) -> Result<void> {
    ports_.events.tell(pod, Events::Type::Warning, "Failed", message);
    const std::lock_guard lock(memory.mutex);
    const auto& before = memory.containers[action.name].trouble;
    if (!before || before->message != message) log_warn("container cannot be started", {{"pod", kube::key_of(pod).text()}, {"container", action.name}, {"reason", message}});
    memory.containers[action.name].trouble = Trouble{.reason = reason, .message = message, .retry_at = ports_.clock.now() + pause};
    return {};
  };
  auto image = find_image(ports_.config.images_dir, (*container)["image"].string());
  if (!image) {
    if (image.error().code == Code::Invalid) return trouble("InvalidImageName", image.error().message, 30s);
    return trouble((*container)["imagePullPolicy"].string() == "Never" ? "ErrImageNeverPull" : "ImagePullBackOff", image.error().message, 5s);
  }
  const VolumeSources sources = sources_for(pod, seen.ip);
  auto spec = make_container_spec(pod, *container, action.attempt, *image, image_accounts(*image), sources.objects, ports_.capabilities);
  if (!spec) return trouble("CreateContainerConfigError", spec.error().message, 5s);
  std::vector<std::pair<std::string, std::string>> variables;
  for (const std::string& item : spec->env) variables.emplace_back(item.substr(0, item.find('=')), item.substr(item.find('=') + 1));
  auto mounts = volumes_.mounts(pod, *container, sources, variables);
  if (!mounts) return trouble("CreateContainerConfigError", mounts.error().message, 5s);
  spec->backoff_seconds = action.backoff_seconds;
  const std::string etc = etc_folder(uid) + "/";
  for (const char* file : {"hosts", "hostname", "resolv.conf"}) {
    const std::string target = std::string("/etc/") + file;
    const bool own = std::any_of(mounts->begin(), mounts->end(), [&](const MountSpec& mount) { return mount.target == target; });
    if (!own)
      spec->mounts.push_back({.source = etc + file, .target = target, .type = "bind", .options = {"rbind", spec->read_only_root ? "ro" : "rw"}});
  }
  spec->mounts.insert(spec->mounts.end(), mounts->begin(), mounts->end());
  if (spec->privileged) spec->devices = host_devices();
  if (!ports_.config.cdi_dirs.empty() && !asked_devices(*container).empty())
    if (auto granted = grant_devices(*container, *spec); !granted) return trouble("CreateContainerError", granted.error().message, 10s);
  const std::int64_t fs_group = pod["spec"]["securityContext"]["fsGroup"].integer(-1);
  auto devices = volumes_.devices(pod, *container, sources, spec->uid, fs_group >= 0 ? fs_group : spec->gid);
  if (!devices) return trouble("CreateContainerConfigError", devices.error().message, 5s);
  for (Device& device : *devices) {
    std::erase_if(spec->devices, [&](const Device& one) { return one.path == device.path; });
    spec->devices.push_back(std::move(device));
  }
  {
    const std::lock_guard lock(mutex_);
    attempts_[spec->id] = kube::key_of(pod);
  }
  auto started = ports_.runtime.start(*spec);
  {
    const std::lock_guard lock(granting_);
    reserved_.erase(spec->id);  // from here on what is written down tells
  }
  {
    const std::lock_guard lock(memory.mutex);
    memory.containers[action.name].trouble.reset();
  }
  if (!started) {
    // Settled as an attempt that ended with StartError: its back-off follows.
    ports_.events.tell(pod, Events::Type::Warning, "Failed", fmt::format("Error: {}: {}", action.name, started.error().message));
    return {};
  }
  ports_.events.tell(pod, Events::Type::Normal, "Started", fmt::format("Started container {}", action.name));
  if (const Json& hook = (*container)["lifecycle"]["postStart"]; hook.is_object()) {
    if (const std::string why = run_hook(pod, *container, hook, seen.ip, 60s); !why.empty()) {
      ports_.events.tell(pod, Events::Type::Warning, "FailedPostStartHook", fmt::format("postStart hook of {} failed: {}", action.name, why));
      (void)ports_.runtime.signal(uid, action.name, SIGKILL);
    }
  }
  return {};
}

Result<void> PodController::grant_devices(const Json& container, ContainerSpec& spec) {
  const auto asked = asked_devices(container);
  const auto kinds = read_cdi(ports_.config.cdi_dirs);
  const std::lock_guard lock(granting_);
  std::optional<std::vector<GrantedDevice>> taken;
  Granted granted;
  for (const auto& [resource, count] : asked) {
    const auto kind = std::ranges::find(kinds, resource, &CdiKind::kind);
    if (kind == kinds.end()) {
      // What the configuration declares is only counted. Of the rest the Node was said to have some: a container without them is not what was asked for.
      if (ports_.config.capacity.contains(resource)) continue;
      return fail(Code::Unavailable, fmt::format("no CDI file of this node names {} now", resource));
    }
    if (!taken) {
      auto held = held_devices(spec.id);
      if (!held) return std::unexpected(std::move(held.error()));
      taken = std::move(*held);
    }
    auto chosen = choose_devices(*kind, *taken, count);
    if (!chosen) return std::unexpected(std::move(chosen.error()));
    if (auto done = apply_edits(edits_for(*kind, *chosen), spec); !done) return pass(std::move(done.error()), resource);
    taken->insert(taken->end(), chosen->begin(), chosen->end());
    granted[resource] = std::move(*chosen);
  }
  spec.granted = granted;
  if (!granted.empty()) reserved_[spec.id] = std::move(granted);
  return {};
}

Result<std::vector<GrantedDevice>> PodController::held_devices(const std::string& but) {
  std::vector<GrantedDevice> out;
  const auto add = [&](const std::string& id, const Granted& granted) {
    if (id == but) return;  // a start of it that was cut off is wiped before it is tried again
    for (const auto& [resource, devices] : granted) out.insert(out.end(), devices.begin(), devices.end());
  };
  for (const auto& [id, granted] : reserved_) add(id, granted);
  auto pods = ports_.runtime.list();
  if (!pods) return std::unexpected(std::move(pods.error()));
  for (const std::string& uid : *pods) {
    auto there = ports_.runtime.peek(uid);
    if (!there && there.error().code == Code::NotFound) continue;
    if (!there) return pass(std::move(there.error()), "see who has which devices");
    for (const auto& [name, one] : there->containers)
      for (const Attempt& attempt : one.held) add(attempt.id, attempt.devices);
  }
  return out;
}

std::string PodController::run_hook(const Json& pod, const Json& container, const Json& hook, const std::string& ip,
                                    std::chrono::milliseconds limit) {
  const std::string& name = container["name"].string();
  if (const Json& get = hook["httpGet"]; get.is_object()) {
    // The same fields as a probe's: read by the same function.
    const auto probes = probes_of(Json::object({{"ports", container["ports"]}, {"livenessProbe", Json::object({{"httpGet", get}})}}));
    const ProbeSpec& spec = probes.at(0);
    const std::string host = spec.host.empty() ? first_address(ip) : spec.host;
    auto code = check_http({.ip = host, .port = spec.port, .path = spec.path, .headers = spec.headers, .tls = spec.https}, limit);
    if (!code) return code.error().message;
    return *code >= 200 && *code < 400 ? "" : fmt::format("GET {} answered {}", spec.path, *code);
  }
  std::vector<std::string> command = texts(hook["exec"]["command"]);
  // Only of postStart: here the container must be there for all of it.
  if (hook["sleep"].is_object()) command = {"sleep", std::to_string(hook["sleep"]["seconds"].integer())};
  auto output = run_in_container(ports_.runtime, kube::uid_of(pod), name, command, limit);
  if (!output) return output.error().message;
  return output->exit.code == 0 ? "" : fmt::format("exit status {}", output->exit.code);
}

void PodController::begin_stop(const BeginStop& action, const Json& pod, const PodSeen& seen, const std::shared_ptr<Memory>& memory) {
  const Json* container = container_named(pod, action.name);
  const auto it = seen.containers.find(action.name);
  if (container == nullptr || it == seen.containers.end() || !it->second.latest) return;
  ports_.events.tell(
      pod, Events::Type::Normal, "Killing",
      action.why == "Stopping container" ? "Stopping container " + action.name : fmt::format("Container {} {}", action.name, action.why));
  const Json hook = (*container)["lifecycle"]["preStop"];
  {
    const std::lock_guard lock(memory->mutex);
    auto& kept = memory->containers[action.name];
    kept.stop = Stop{.deadline = action.deadline, .hook_done = !hook.is_object()};
    kept.stopping = it->second.latest->id;
  }
  if (!hook.is_object()) return;
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(action.deadline - ports_.clock.now());
  const std::string name = action.name, attempt = it->second.latest->id;
  const kube::ObjectKey key = kube::key_of(pod);
  const auto finish = [this, memory, name, attempt, key] {
    {
      const std::lock_guard lock(memory->mutex);
      auto& kept = memory->containers[name];
      if (kept.stop && kept.stopping == attempt) kept.stop->hook_done = true;
    }
    ports_.wake(key);
  };
  if (hook["sleep"].is_object()) {  // needs no thread: the container just gets its signal later
    const std::lock_guard lock(memory->mutex);
    auto& kept = memory->containers[action.name];
    if (kept.stop) kept.stop->hook_until = std::min(action.deadline, ports_.clock.now() + std::chrono::seconds(hook["sleep"]["seconds"].integer()));
    return;
  }
  const bool added = jobs_.add([this, name, limit, finish, pod, hook, container = *container, ip = seen.ip] {
    if (const std::string why = run_hook(pod, container, hook, ip, std::max(limit, std::chrono::milliseconds(1))); !why.empty())
      ports_.events.tell(pod, Events::Type::Warning, "FailedPreStopHook", fmt::format("preStop hook of {} failed: {}", name, why));
    finish();
  });
  if (!added) finish();
}

}  // namespace fairlead::node
