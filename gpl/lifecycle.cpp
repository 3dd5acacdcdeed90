// SPDX-License-Identifier: GPL-3.0-or-later
#include "lifecycle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "supervise.h"

namespace fairlead::companion {
namespace {

constexpr const char* kConfigFolder = "/opt/ml/config";
constexpr const char* kLogFolder = "/var/log/provision";
constexpr const char* kOneAtATime = "/run/fairlead/one-at-a-time";  // programs that wait for those of other nodes
constexpr std::size_t kTail = 2000;               // bytes that are told of a script that failed; a kubelet takes 4096
constexpr std::size_t kMostLog = 64 << 20;        // bytes in its file; whoever writes more fills no disk by that
constexpr int kTooLong = 124, kNotStarted = 125;  // as timeout(1) has them

bool is_inner_path(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.back() == '/') return false;
  for (const std::string& part : split(path, '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

struct Loaded {
  std::vector<std::pair<std::string, std::string>> files;  // path, bytes
  std::map<std::string, std::string> config;               // by the name of the file
  const std::string* file(std::string_view path) const {
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& one) { return one.first == path; });
    return found == files.end() ? nullptr : &found->second;
  }
};

Result<Loaded> load(const LifecycleOptions& options) {
  Loaded out;
  const auto manifest = read_file(options.source + "/manifest");
  if (!manifest) return std::unexpected(manifest.error());
  // What was fetched is what was asked for by whoever made this pod: a Secret may be somebody else's.
  if (!options.sum.empty() && hex(sha256(*manifest)) != options.sum) return fail(Code::Invalid, "the scripts are not those that were fetched: their Secret was replaced");
  const auto listed = read_manifest(*manifest);
  if (!listed) return std::unexpected(listed.error());
  for (const BundledFile& file : *listed) {
    std::string bytes;
    for (const std::string& part : file.parts) {
      auto read = read_file(options.source + "/" + part);
      if (!read) return std::unexpected(std::move(read.error()));
      bytes += *read;
    }
    if (bytes.size() != file.bytes || hex(sha256(bytes)) != file.sum) return fail(Code::Invalid, fmt::format("{}: its checksum is not the one that was written down when it was fetched", file.path));
    out.files.emplace_back(file.path, std::move(bytes));
  }
  std::vector<std::string> names;
  for (const LifecycleOptions::Group& group : options.groups) names.insert(names.end(), group.files.begin(), group.files.end());
  names.push_back(options.controller ? "controller.json" : "cluster.json");
  if (options.controller) names.push_back("cluster.json");
  for (const std::string& name : names) {
    auto text = read_file(options.config + "/" + name);
    if (!text) return std::unexpected(std::move(text.error()));
    out.config.emplace(name, std::move(*text));
  }
  if (auto text = read_file(options.config + "/provisioning_parameters.json")) out.config.emplace("provisioning_parameters.json", std::move(*text));
  return out;
}

// `own`: as this machine is to read it; else as all nodes that share the root may.
std::string resource_config(const LifecycleOptions& options, const Loaded& loaded, bool own) {
  std::string out = fmt::format("{{\"ClusterConfig\":{},\"InstanceGroups\":[", loaded.config.at(own && options.controller ? "controller.json" : "cluster.json"));
  for (const LifecycleOptions::Group& group : options.groups) {
    out += fmt::format("{}{{\"Name\":\"{}\",\"InstanceType\":\"{}\",\"Instances\":[", &group == &options.groups.front() ? "" : ",", group.name, group.type);
    bool first = true;
    for (const std::string& file : group.files) {
      std::string_view nodes = trim(loaded.config.at(file));
      if (nodes.size() < 2 || nodes.front() != '[' || nodes.back() != ']' || trim(nodes.substr(1, nodes.size() - 2)).empty()) continue;
      const std::string list(nodes.substr(1, nodes.size() - 2));
      out += (first ? "" : ",") + (own && !options.address.empty() ? with_address(list, options.instance, options.address) : list);
      first = false;
    }
    out += "]}";
  }
  return out + "]}\n";
}

// Folders that root alone can change: in /tmp of a machine anybody may have made one of that name.
Result<void> own_folders(const std::string& path) {
  for (std::size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string folder = path.substr(0, at);
    if (folder == "/tmp") continue;
    if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno(errno, "make " + folder);
    struct stat about {};
    if (::lstat(folder.c_str(), &about) != 0) return fail_errno(errno, "look at " + folder);
    if (!S_ISDIR(about.st_mode) || about.st_uid != ::geteuid() || (about.st_mode & 022) != 0) return fail(Code::Forbidden, fmt::format("{} is not a folder that root alone can change; remove it", folder));
  }
  return {};
}

Result<void> lay_out_files(const LifecycleOptions& options, const Loaded& loaded) {
  if (auto made = make_dirs("/tmp", 01777); !made) return made;
  if (auto made = own_folders(options.folder); !made) return made;
  if (auto cleared = remove_tree(options.folder); !cleared) return cleared;  // of an earlier script
  if (auto made = own_folders(options.folder); !made) return made;
  const auto put = [&](const std::string& path, const std::string& bytes) -> Result<void> {
    const std::string whole = options.folder + "/" + path;
    if (auto made = make_dirs(whole.substr(0, whole.rfind('/')), 0755); !made) return made;
    return write_file_atomically(whole, bytes, 0755);  // a bucket knows no modes
  };
  for (const auto& [path, bytes] : loaded.files)
    if (auto done = put(path, bytes); !done) return done;
  const auto parameters = loaded.config.find("provisioning_parameters.json");
  if (loaded.file("provisioning_parameters.json") == nullptr && parameters != loaded.config.end()) return put("provisioning_parameters.json", parameters->second);
  return {};
}

Result<void> lay_out_config(const LifecycleOptions& options, const Loaded& loaded, bool own) {
  if (auto made = make_dirs(kConfigFolder, 0755); !made) return made;
  const auto put = [](const char* name, std::string_view bytes) { return write_file_atomically(fmt::format("{}/{}", kConfigFolder, name), bytes, 0644); };
  if (auto done = put("resource_config.json", resource_config(options, loaded, own)); !done) return done;
  if (auto done = put("life_cycle_config.json", options.life_cycle_config); !done) return done;
  const std::string* parameters = loaded.file("provisioning_parameters.json");
  if (const auto made = loaded.config.find("provisioning_parameters.json"); parameters == nullptr && made != loaded.config.end()) parameters = &made->second;
  return parameters == nullptr ? Result<void>() : put("provisioning_parameters.json", *parameters);
}

// Nodes that share a root install the same packages at the same moment, and apt ends when somebody else is at it: here it waits.
Result<void> share_packages() {
  for (const char* dir : {kOneAtATime, "/var/lib/fairlead"})
    if (auto made = make_dirs(dir, 0755); !made) return made;
  for (const char* program : {"apt", "apt-get"})
    if (auto done = write_file_atomically(fmt::format("{}/{}", kOneAtATime, program), fmt::format("#!/bin/sh\nexec flock -o /var/lib/fairlead/packages.lock /usr/bin/{} \"$@\"\n", program), 0755); !done) return done;
  return {};
}

Result<void> lay_out(const LifecycleOptions& options, const Loaded& loaded) {
  if (auto done = lay_out_files(options, loaded); !done) return done;
  // What all nodes have is for jobs to read; the script sees its own on top of it.
  if (auto done = lay_out_config(options, loaded, !options.shared_root); !done) return done;
  if (options.shared_root) {
    if (::mount("fairlead-config", kConfigFolder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m") != 0) return fail_errno(errno, std::string("mount ") + kConfigFolder);
    if (auto done = lay_out_config(options, loaded, true); !done) return done;
  }
  // By this folder job scripts of HyperPod's samples know where they run.
  if (loaded.config.contains("provisioning_parameters.json"))
    if (auto made = make_dirs("/opt/sagemaker_cluster", 0755); !made) return made;
  const std::string log = options.shared_root ? fmt::format("{}/{}", kLogFolder, options.instance) : kLogFolder;
  if (auto made = make_dirs(log, 0755); !made) return made;
  if (options.shared_root)
    if (auto done = share_packages(); !done) return done;
  if (options.shared_root && ::mount(log.c_str(), kLogFolder, nullptr, MS_BIND, nullptr) != 0) return fail_errno(errno, std::string("mount ") + kLogFolder);
  return {};
}

// A script by its first bytes: the kernel's own words for what is wrong with them are none that help.
Result<void> check_script(const LifecycleOptions& options, const Loaded& loaded) {
  const std::string* bytes = loaded.file(options.script);
  if (bytes == nullptr) return fail(Code::NotFound, "there is no such file among the scripts");
  if (bytes->starts_with("\x7f""ELF")) return {};
  if (!bytes->starts_with("#!")) return fail(Code::Invalid, "it does not begin with #! and the path of its interpreter, such as #!/bin/bash");
  const std::string first = bytes->substr(0, bytes->find('\n'));
  if (first.ends_with('\r')) return fail(Code::Invalid, "its lines end with CR LF, as on Windows; write it with LF");
  const std::string interpreter = std::string(trim(first.substr(2)));
  if (const std::string program = interpreter.substr(0, interpreter.find_first_of(" \t")); ::access(program.c_str(), X_OK) != 0) return fail(Code::NotFound, fmt::format("its interpreter {} is not here", program));
  return {};
}

class Log {
 public:
  explicit Log(const char* path) : fd_(::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640)) {}
  void write(std::string_view bytes) {
    put(1, bytes);
    tail_ += bytes;
    if (tail_.size() > 4 * kTail) tail_.erase(0, tail_.size() - 2 * kTail);
    if (!fd_ || written_ >= kMostLog) return;
    written_ += bytes.size();
    put(fd_.get(), bytes);
    if (written_ >= kMostLog) put(fd_.get(), "\nfairlead: what follows is not kept: the script wrote more than 64 MiB\n");
  }
  std::string tail() const { return last_lines(tail_, kTail); }

 private:
  // A file that cannot be written ends no script.
  static void put(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    }
  }
  Fd fd_;
  std::size_t written_ = 0;
  std::string tail_;
};

// Runs it to its end, or to the end of its time. What it left in the background ends with the pod.
Result<int> run_to_end(const LifecycleOptions& options, Log& log, std::string& why) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  Fd out(ends[0]), in(ends[1]);
  sigset_t set, before;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, &before);
  const Fd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  const std::string first = options.shared_root ? std::string(kOneAtATime) + ":" : "";
  std::map<std::string, std::string> environment{{"PATH", first + "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/fairlead/bin"}, {"HOME", "/root"}, {"USER", "root"}, {"LOGNAME", "root"}, {"LANG", "C.UTF-8"}, {"SAGEMAKER_RESOURCE_CONFIG_PATH", std::string(kConfigFolder) + "/resource_config.json"}, {"SAGEMAKER_INSTANCE_ID", options.instance}};
  auto child = Child::start({.argv = {options.folder + "/" + options.script}, .environment = std::move(environment), .working_directory = options.folder, .stdout_fd = in.get(), .stderr_fd = in.get(), .new_session = true, .before_exec = [before] { return sigprocmask(SIG_SETMASK, &before, nullptr) == 0 ? 0 : errno; }});
  if (!child) return std::unexpected(std::move(child.error()));
  in = Fd();
  const SystemClock clock;
  const auto deadline = clock.monotonic() + options.limit;
  const auto end_all = [&] { ::kill(-child->pid(), SIGKILL); };
  std::optional<Exit> exit;
  bool open = true;
  std::optional<int> told;
  std::chrono::nanoseconds ended_at{};
  while (!exit || open) {
    pollfd watched[2] = {{signals.get(), POLLIN, 0}, {open ? out.get() : -1, POLLIN, 0}};
    ::poll(watched, 2, 100);
    signalfd_siginfo info;
    while (::read(signals.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD && !told) {
        told = 143;
        why = "it was ended from outside";
        end_all();
      }
    if (open && (watched[1].revents & (POLLIN | POLLHUP)) != 0) {
      char buffer[64 << 10];
      const ssize_t got = ::read(out.get(), buffer, sizeof buffer);
      if (got > 0) log.write({buffer, static_cast<std::size_t>(got)});
      else if (got == 0 || errno != EINTR) open = false;
    }
    reap_orphans({child->pid()});
    if (!exit) {
      auto ended = child->wait(std::chrono::milliseconds(0));
      if (!ended) return std::unexpected(std::move(ended.error()));
      exit = *ended;
      if (exit) ended_at = clock.monotonic();
    }
    if (!exit && !told && clock.monotonic() >= deadline) {
      told = kTooLong;
      why = fmt::format("it did not end within {} s and was ended", options.limit.count());
      end_all();
    }
    // What runs on in the background may hold the pipe, and write to it for ever.
    if (exit && clock.monotonic() - ended_at > std::chrono::milliseconds(500)) break;
  }
  end_all();
  if (told) return *told;
  if (exit->signal != 0) why = fmt::format("it was ended by signal {} ({})", exit->signal, ::strsignal(exit->signal));
  else if (exit->code != 0) why = fmt::format("it ended with {}", exit->code);
  return exit->code;
}

}  // namespace

Result<std::vector<BundledFile>> read_manifest(std::string_view text) {
  std::vector<BundledFile> out;
  const auto wrong = [&](std::string_view what) { return fail(Code::Invalid, fmt::format("line {} of the list of scripts: {}", out.size() + 1, what)); };
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = rest.find('\n');
    if (end == rest.npos) return wrong("it has no end");
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    const auto word = [&]() {
      const auto space = line.find(' ');
      const std::string_view found = line.substr(0, space);
      line = space == line.npos ? std::string_view() : line.substr(space + 1);
      return found;
    };
    BundledFile file;
    file.sum = std::string(word());
    const std::string_view bytes = word(), parts = word();
    file.path = std::string(line);
    if (file.sum.size() != 64 || file.sum.find_first_not_of("0123456789abcdef") != file.sum.npos) return wrong("no SHA-256");
    const auto read = std::from_chars(bytes.data(), bytes.data() + bytes.size(), file.bytes);
    if (bytes.empty() || read.ec != std::errc() || read.ptr != bytes.data() + bytes.size()) return wrong("no size");
    if (parts != "-")
      for (const std::string& part : split(parts, ',')) {
        if (part.empty() || part.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != part.npos) return wrong("no key");
        file.parts.push_back(part);
      }
    if (!is_inner_path(file.path) || file.path.find('\0') != file.path.npos) return wrong("no path below the folder");
    out.push_back(std::move(file));
  }
  return out;
}

std::string with_address(std::string nodes, const std::string& instance, const std::string& address) {
  const std::string key = fmt::format("\"InstanceId\":\"{}\"", instance), field = "\"CustomerIpAddress\":\"";
  auto at = nodes.find(key);
  const auto end_of_entry = at == nodes.npos ? at : nodes.find('}', at);
  at = at == nodes.npos ? at : nodes.find(field, at);
  if (at == nodes.npos || at > end_of_entry) return nodes;
  at += field.size();
  return nodes.replace(at, nodes.find('"', at) - at, address);
}

std::string last_lines(std::string_view text, std::size_t most) {
  text = trim(text);
  bool cut = false;
  if (text.size() > most) {
    text = text.substr(text.size() - most);
    if (const auto line = text.find('\n'); line != text.npos && line < most / 2) text = text.substr(line + 1);
    cut = true;
  }
  std::string out = cut ? "...\n" : "";
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    bool good = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; good && k < length; ++k) good = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
    if (good && length == 3) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      good = !(c == 0xe0 && second < 0xa0) && !(c == 0xed && second >= 0xa0);
    }
    if (good && length == 4) {
      const auto second = static_cast<unsigned char>(text[i + 1]);
      good = !(c == 0xf0 && second < 0x90) && !(c == 0xf4 && second >= 0x90);
    }
    if (length == 1) out += c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f) ? text[i] : ' ';
    else if (good) out += text.substr(i, length);
    else out += '?';
    i += good ? length : 1;
  }
  return out;
}

Result<LifecycleOptions> lifecycle_options(const std::map<std::string, std::string>& environment) {
  LifecycleOptions out;
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  out.instance = value("FAIRLEAD_INSTANCE");
  out.script = value("FAIRLEAD_SCRIPT");
  out.folder = value("FAIRLEAD_SCRIPT_FOLDER");
  out.life_cycle_config = value("FAIRLEAD_LIFE_CYCLE_CONFIG");
  out.controller = value("FAIRLEAD_CONTROLLER") == "1";
  out.address = value("FAIRLEAD_ADDRESS");
  if (out.address.find_first_not_of("0123456789abcdef.:") != out.address.npos) return fail(Code::Invalid, "FAIRLEAD_ADDRESS: an address is expected");
  if (const std::string root = value("FAIRLEAD_SCRIPT_ROOT"); !root.empty()) out.root = root;
  for (const std::string& text : split(value("FAIRLEAD_GROUP_FILES"), ';')) {
    const auto parts = split(text, '=');
    if (text.empty()) continue;
    const auto plain = [](const std::string& name) { return !name.empty() && name.find_first_of("/\"\\\n") == name.npos && name.front() != '.'; };
    if (parts.size() != 3 || !plain(parts[0]) || !plain(parts[1])) return fail(Code::Invalid, "FAIRLEAD_GROUP_FILES: NAME=TYPE=FILE,... is expected of each group");
    LifecycleOptions::Group group{parts[0], parts[1], split(parts[2], ',')};
    for (const std::string& file : group.files)
      if (!plain(file)) return fail(Code::Invalid, "FAIRLEAD_GROUP_FILES: names of files are expected");
    out.groups.push_back(std::move(group));
  }
  out.sum = value("FAIRLEAD_SCRIPT_SUM");
  if (out.instance.empty() || !is_inner_path(out.instance) || out.instance.find('/') != out.instance.npos) return fail(Code::Invalid, "FAIRLEAD_INSTANCE: the id of an instance is expected");
  if (!is_inner_path(out.script)) return fail(Code::Invalid, "FAIRLEAD_SCRIPT: a path below the folder of the scripts is expected");
  if (!out.folder.starts_with("/tmp/") || !is_inner_path(out.folder.substr(1))) return fail(Code::Invalid, "FAIRLEAD_SCRIPT_FOLDER: a folder below /tmp is expected");
  const std::string limit = value("FAIRLEAD_SCRIPT_LIMIT");
  long seconds = 3600;
  if (!limit.empty()) {
    const auto read = std::from_chars(limit.data(), limit.data() + limit.size(), seconds);
    if (read.ec != std::errc() || read.ptr != limit.data() + limit.size() || seconds < 1 || seconds > 7 * 86'400) return fail(Code::Invalid, "FAIRLEAD_SCRIPT_LIMIT: seconds are expected");
  }
  out.limit = std::chrono::seconds(seconds);
  return out;
}

int run_lifecycle(const LifecycleOptions& options) {
  const Fd last_word(::open(options.last_word.c_str(), O_WRONLY | O_CLOEXEC));
  const auto tell = [&](const std::string& words) {
    if (last_word && ::write(last_word.get(), words.data(), words.size()) < 0) log_warn("its last words were lost", {{"error", std::strerror(errno)}});
  };
  const auto refuse = [&](const std::string& words) {
    log_error("the script was not started", {{"script", options.script}, {"error", words}});
    tell(words);
    return kNotStarted;
  };
  const auto loaded = load(options);
  if (!loaded) return refuse(loaded.error().message);
  if (options.root != "/" && (::chroot(options.root.c_str()) != 0 || ::chdir("/") != 0)) return refuse(fmt::format("enter {}: {}", options.root, std::strerror(errno)));
  // What it holds is nobody's who comes later to this machine. A folder that is somebody else's is his.
  const auto tidy = [&] {
    if (own_folders(options.folder)) (void)remove_tree(options.folder);
  };
  const auto give_up = [&](const std::string& words) {
    tidy();
    return refuse(words);
  };
  if (auto done = lay_out(options, *loaded); !done) return give_up(done.error().message);
  if (auto done = check_script(options, *loaded); !done) return give_up(done.error().message);
  Log log((std::string(kLogFolder) + "/provisioning.log").c_str());
  std::string why;
  const auto code = run_to_end(options, log, why);
  if (!code) return give_up(code.error().message);
  if (*code != 0) {
    const std::string tail = log.tail();
    tell(why + (tail.empty() ? "" : ":\n" + tail));
  }
  tidy();
  log_info("the script has ended", {{"script", options.script}, {"status", std::to_string(*code)}});
  return *code;
}

}  // namespace fairlead::companion
