// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "apiserver/kinds/kinds.h"
#include "apiserver/columns.h"
#include "kube/json.h"

namespace fairlead::apiserver::test {
namespace {

using kube::Json;

Json yaml(std::string_view text) { return kube::parse_yaml(text)->at(0); }
const Instant now = *parse_time("2026-01-01T01:00:00Z");

std::string cell(const std::vector<Column>& columns, std::string_view name, const Json& object) {
  for (const Column& column : columns)
    if (column.name == name) {
      const Json value = column.cell(object, now);
      return value.is_string() ? value.string() : print_json(value);
    }
  ADD_FAILURE() << "no column " << name;
  return "";
}

struct PodCase {
  const char* name;
  const char* pod;
  const char* ready;
  const char* status;
  const char* restarts;
};
class PodColumns : public testing::TestWithParam<PodCase> {};
TEST_P(PodColumns, AreAsKubectlPrintsThem) {
  const Json pod = yaml(GetParam().pod);
  EXPECT_EQ(cell(pod_columns(), "Ready", pod), GetParam().ready);
  EXPECT_EQ(cell(pod_columns(), "Status", pod), GetParam().status);
  EXPECT_EQ(cell(pod_columns(), "Restarts", pod), GetParam().restarts);
}
INSTANTIATE_TEST_SUITE_P(
    All, PodColumns,
    testing::Values(
        PodCase{"pending", "{spec: {containers: [{name: a}, {name: b}]}, status: {phase: Pending}}", "0/2", "Pending", "0"},
        PodCase{"creating", "{spec: {containers: [{name: a}]}, status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}]}}", "0/1", "ContainerCreating", "0"},
        PodCase{"running", "{spec: {containers: [{name: a}, {name: b}]}, status: {phase: Running, containerStatuses: [{ready: true, state: {running: {}}}, {ready: false, state: {running: {}}}]}}", "1/2", "Running", "0"},
        PodCase{"crash_loop",
                "{spec: {containers: [{name: a}]}, status: {phase: Running, containerStatuses: [{restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {finishedAt: '2026-01-01T00:55:00Z'}}}]}}",
                "0/1", "CrashLoopBackOff", "3 (5m ago)"},
        PodCase{"completed", "{spec: {containers: [{name: a}]}, status: {phase: Succeeded, containerStatuses: [{state: {terminated: {reason: Completed, exitCode: 0}}}]}}", "0/1", "Completed", "0"},
        PodCase{"exit_code", "{spec: {containers: [{name: a}]}, status: {phase: Failed, containerStatuses: [{state: {terminated: {exitCode: 3}}}]}}", "0/1", "ExitCode:3", "0"},
        PodCase{"signal", "{spec: {containers: [{name: a}]}, status: {phase: Failed, containerStatuses: [{state: {terminated: {exitCode: 137, signal: 9}}}]}}", "0/1", "Signal:9", "0"},
        PodCase{"init_waits", "{spec: {initContainers: [{name: i}, {name: j}], containers: [{name: a}]}, status: {phase: Pending, initContainerStatuses: [{state: {running: {}}}, {state: {waiting: {reason: PodInitializing}}}]}}",
                "0/1", "Init:0/2", "0"},
        PodCase{"second_init",
                "{spec: {initContainers: [{name: i}, {name: j}], containers: [{name: a}]}, status: {phase: Pending, initContainerStatuses: [{state: {terminated: {exitCode: 0}}}, {state: {running: {}}, restartCount: 2}]}}",
                "0/1", "Init:1/2", "2"},
        PodCase{"init_fails", "{spec: {initContainers: [{name: i}], containers: [{name: a}]}, status: {phase: Pending, initContainerStatuses: [{state: {terminated: {exitCode: 2, reason: Error}}}]}}", "0/1", "Init:Error", "0"},
        PodCase{"init_backs_off", "{spec: {initContainers: [{name: i}], containers: [{name: a}]}, status: {phase: Pending, initContainerStatuses: [{state: {waiting: {reason: CrashLoopBackOff}}}]}}", "0/1",
                "Init:CrashLoopBackOff", "0"},
        PodCase{"one_done_one_running",
                "{spec: {containers: [{name: a}, {name: b}]}, status: {phase: Running, conditions: [{type: Ready, status: 'False'}], containerStatuses: [{state: {terminated: {reason: Completed, exitCode: 0}}}, "
                "{ready: true, state: {running: {}}}]}}",
                "1/2", "NotReady", "0"},
        PodCase{"terminating", "{metadata: {deletionTimestamp: x}, spec: {containers: [{name: a}]}, status: {phase: Running, containerStatuses: [{ready: true, state: {running: {}}}]}}", "1/1", "Terminating", "0"},
        PodCase{"evicted", "{spec: {containers: [{name: a}]}, status: {phase: Failed, reason: Evicted}}", "0/1", "Evicted", "0"}),
    [](const auto& row) { return row.param.name; });

TEST(NodeColumns, AreAsKubectlPrintsThem) {
  const Json node = yaml(
      "{metadata: {name: n1, creationTimestamp: '2026-01-01T00:00:00Z', labels: {node-role.kubernetes.io/worker: '', kubernetes.io/role: gpu}}, spec: {unschedulable: true}, "
      "status: {conditions: [{type: Ready, status: 'True'}], addresses: [{type: InternalIP, address: 10.77.1.1}], nodeInfo: {kubeletVersion: v1, osImage: Debian}}}");
  const auto columns = node_columns();
  EXPECT_EQ(cell(columns, "Status", node), "Ready,SchedulingDisabled");
  EXPECT_EQ(cell(columns, "Roles", node), "gpu,worker");
  EXPECT_EQ(cell(columns, "Age", node), "60m");
  EXPECT_EQ(cell(columns, "Version", node), "v1");
  EXPECT_EQ(cell(columns, "Internal-IP", node), "10.77.1.1");
  EXPECT_EQ(cell(columns, "Kernel-Version", node), "<unknown>");
  EXPECT_EQ(cell(columns, "Status", yaml("{status: {conditions: [{type: Ready, status: Unknown}]}}")), "NotReady");
  EXPECT_EQ(cell(columns, "Roles", yaml("{}")), "<none>");
}

TEST(OtherColumns, AreAsKubectlPrintsThem) {
  const Json service = yaml("{metadata: {name: s}, spec: {type: ClusterIP, clusterIP: None, ports: [{port: 80, protocol: TCP}, {port: 53, protocol: UDP}], selector: {app: web}}}");
  EXPECT_EQ(cell(service_columns(), "Port(s)", service), "80/TCP,53/UDP");
  EXPECT_EQ(cell(service_columns(), "Selector", service), "app=web");
  const Json claim = yaml("{spec: {volumeMode: Filesystem}, status: {phase: Bound, accessModes: [ReadWriteMany, ReadWriteOnce], capacity: {storage: 1Gi}}}");
  EXPECT_EQ(cell(claim_columns(), "Access Modes", claim), "RWX,RWO");
  EXPECT_EQ(cell(claim_columns(), "Capacity", claim), "1Gi");
  const Json event = yaml("{involvedObject: {kind: Pod, name: p}, lastTimestamp: '2026-01-01T00:59:00Z', source: {component: agent, host: n1}, count: 4}");
  EXPECT_EQ(cell(event_columns(), "Last Seen", event), "60s");
  EXPECT_EQ(cell(event_columns(), "Object", event), "pod/p");
  EXPECT_EQ(cell(event_columns(), "Source", event), "agent, n1");
  EXPECT_EQ(cell(event_columns(), "Count", event), "4");
  EXPECT_EQ(event_columns().back().name, "Name");
  const Json series = yaml("{involvedObject: {kind: Pod, name: p}, eventTime: '2026-01-01T00:50:00Z', series: {count: 7, lastObservedTime: '2026-01-01T00:58:00Z'}, reportingComponent: s, reportingInstance: n2}");
  EXPECT_EQ(cell(event_columns(), "Last Seen", series), "2m");
  EXPECT_EQ(cell(event_columns(), "First Seen", series), "10m");
  EXPECT_EQ(cell(event_columns(), "Source", series), "s, n2");
  EXPECT_EQ(cell(event_columns(), "Count", series), "7");
}

}  // namespace
}  // namespace fairlead::apiserver::test
