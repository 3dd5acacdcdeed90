// SPDX-License-Identifier: Apache-2.0
// Machine (fairlead.dev/v1alpha1) as a value: a node that Fairlead itself brings up on this machine (`spec.local`), or a host that joins by a token (`spec.host`, docs/design/056).
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

// Taint of a Node, by Kubernetes' own name: whoever sets it says that the machine does not run any more (its power is off, it is fenced), and that what ran there may run elsewhere. Believed only of a Node that is not Ready.
inline constexpr const char* kOutOfService = "node.kubernetes.io/out-of-service";

enum class Power { On, Off };
enum class Link { Connected, Cut };

// The controller on a host's board (BMC) by which its power is switched, whatever its system does (docs/design/057).
struct Bmc {
  enum class Kind { Redfish, Ipmi };
  Kind kind = Kind::Redfish;
  std::string host;                        // name or address, without brackets
  unsigned short port = 443;               // IPMI: 623
  std::string system;                      // of several systems behind one Redfish service, which: its Id, or its path
  std::string secret;                      // Secret in the server's namespace: username, password
  std::string ca_pem;                      // whom its certificate has to be signed by; empty: server_key decides
  std::string server_key;                  // SHA-256 of its certificate's public key, in hex; empty and no ca_pem: nobody is trusted
  friend bool operator==(const Bmc&, const Bmc&) = default;
};
// "https://10.0.9.7", "https://[fd00::7]:8443", "ipmi://10.0.9.7": kind, host and port of it. Invalid, in a sentence: plain HTTP, a path, a user.
Result<Bmc> read_bmc_address(std::string_view text);

// What is asked of a host.
struct HostSpec {
  std::string instance_type;               // "ml.g5.xlarge"; empty: it is called none
  std::string token_hash;                  // of the token that was given out last (api/join.h); empty: none
  std::optional<Instant> token_expires;
  std::string address;                     // at which it is to be; empty: the one from which it asks
  bool gone = false;                       // an administrator's word that nothing of it runs any more
  std::optional<Bmc> bmc;
  std::chrono::seconds shutdown{0};        // before its power is cut its system is asked to end, and has so long for that; 0: it is not asked
};
// The host that joined, written down before it is answered: certificates of another key count no more.
struct HostRecord {
  std::string key;                         // fingerprint of its public key (http/pki.h); empty: none has joined
  std::string token_hash;                  // by which it came
  std::string address, joined;
  friend bool operator==(const HostRecord&, const HostRecord&) = default;
};

// What the user asks for.
struct MachineSpec {
  std::optional<HostSpec> host;            // else it is local
  std::map<std::string, std::string> capacity;  // "cpu" -> "2", "memory" -> "4Gi", "nvidia.com/gpu" -> "1"
  std::map<std::string, std::string> labels;
  kube::Json taints = kube::Json::array();      // as in Node.spec.taints
  Power power = Power::On;
  Link link = Link::Connected;
  std::string reboot;                           // id of the last request to stop it and start it anew; empty: none
};

// What became of the last request to reboot that was taken up (docs/design/022): written down before anything is stopped.
struct RebootRecord {
  std::string id, phase;            // Rebooting, Done, Refused
  std::string message;
  std::int64_t pid = 0;             // the first process that is to end, and no other; 0: none ran
  std::uint64_t start_ticks = 0;
  std::optional<Instant> began;     // when it was written down
  std::string boot;                 // of a host: status.nodeInfo.bootID that is to end; empty: it was silent
  bool silent = false;              // of a host: its agent could not hear of it; its BMC restarts it
  friend bool operator==(const RebootRecord&, const RebootRecord&) = default;
};

// What is known and was done of a host's power, by its BMC (status.power); written down before anything is done.
struct PowerRecord {
  std::string state;                // On, Off, Changing, Unknown; empty: nobody has looked
  std::string want;                 // On, Off: what was begun last; empty: we have never switched it
  std::optional<Instant> since;     // when that was begun
  bool done = false;                // it was seen to be so
  std::string act;                  // what was sent last: On, ForceOff, GracefulShutdown, ForceRestart
  std::optional<Instant> acted;     // when that was written down, before it was sent
  int tries = 0;                    // how often something was sent for what is wanted
  std::optional<Instant> off_since; // since when its BMC has said Off, at each look
  std::string off_lease;            // spec.renewTime of its Node's Lease at that moment
  std::optional<Instant> off_looked;  // the last of these looks, until it is proven
  bool disbelieved = false;         // its agent has reported although it says Off
  bool proven = false;              // it was Off for long enough, and its agent renewed nothing since: nothing runs there
  std::string restart;              // id of the last request to reboot that was carried out by the BMC
  std::optional<Instant> restart_began;  // when that became the BMC's business
  int restarts = 0;
  std::string failed;               // why the last that was sent was not taken; empty: it was
  std::string board;                // which BMC all this is of
  std::int64_t generation = 0;      // of the Machine that this was decided on
  std::string message;              // one sentence
  friend bool operator==(const PowerRecord&, const PowerRecord&) = default;
};

// What has been given to it, written down before it is used: a machine keeps its seat for life.
struct Seat {
  int index = 0;          // 1..254; 0: none yet
  std::string address;    // "10.77.1.3"
  std::string pod_cidr;   // "10.78.3.0/24"
  std::string address6{}, pod_cidr6{};  // "fd00:77::103", "fd00:78:0:3::/64"; empty: the site had no IPv6 ranges when the seat was given
  friend bool operator==(const Seat&, const Seat&) = default;
};

struct Machine {
  std::string name, uid;
  std::int64_t generation = 0;
  bool deleting = false, finalizer = false;
  MachineSpec spec;
  Seat seat;                       // from status
  std::string phase;               // from status
  RebootRecord reboot;             // from status
  HostRecord host;                 // from status
  PowerRecord power;               // from status
  std::vector<std::string> problems;  // of the spec, in sentences; nothing is started while there are any
};

kube::Json power_json(const PowerRecord& record);  // as read_machine reads it

// Is this Node run by Fairlead's agent, on whatever engine? It heeds what a Node's annotations of ours ask of it; a kubelet does not.
bool is_run_by_agent(const kube::Json& node);

// Never fails: what cannot be read becomes a problem.
Machine read_machine(const kube::Json& object);

inline constexpr std::size_t kLongestHostName = 52;
inline constexpr const char* kMachineFinalizer = "fairlead.dev/machine";

}  // namespace fairlead::api
