// SPDX-License-Identifier: Apache-2.0
#include "api/gres_config.h"

#include <gmock/gmock.h>

namespace fairlead::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Row {
  const char* name;
  std::vector<std::string> lines;
  const char* want;  // a part of the only problem; "": none
};
class GresLines : public testing::TestWithParam<Row> {};
TEST_P(GresLines, AreReadAsSlurmdReadsThem) {
  const auto got = check_gres_lines(GetParam().lines);
  if (*GetParam().want) EXPECT_THAT(got, ElementsAre(HasSubstr(GetParam().want)));
  else EXPECT_THAT(got, IsEmpty());
}
INSTANTIATE_TEST_SUITE_P(
    Rows, GresLines,
    testing::Values(
        Row{"files", {"Name=gpu File=/dev/nvidia[0-7] Cores=0-3,8"}, ""}, Row{"case_of_keys", {"NAME=gpu type=a100 FILES=/dev/nvidia0,/dev/nvidia[2-3,5] count=4"}, ""},
        Row{"several", {"Name=gpu Type=a File=/dev/nvidia[0-1] Links=-1,16", "Name=gpu Type=b File=/dev/nvidia2"}, ""}, Row{"count_only", {"Name=gpu Count=4 Flags=CountOnly"}, ""},
        Row{"detect", {"AutoDetect=nvml", "Name=gpu File=/dev/nvidia0 AutoDetect=NVML"}, ""}, Row{"multiple", {"Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/cap1 Count=1"}, ""},
        Row{"flags_of_the_first", {"Name=gpu File=/dev/a Flags=nvidia_gpu_env,opencl_env", "Name=gpu File=/dev/b", "Name=gpu File=/dev/c Flags=opencl_env,nvidia_gpu_env"}, ""},
        // Each of these ends slurmd, or every slurmd of the cluster.
        Row{"typo", {"Name=gpu Fil=/dev/nvidia[0-3]"}, "line 1, Fil: gres.conf of Slurm 22.05 has no such key"}, Row{"no_pair", {"Name=gpu", "Name=gpu nvidia"}, "line 2, nvidia: \"nvidia\" is not KEY=VALUE"},
        Row{"spaces", {"Name=gpu Count = 4"}, "line 1, Count: \"Count\" is not KEY=VALUE"}, Row{"operator", {"Name=gpu Count+=4"}, "line 1, Count+: "},
        Row{"include", {"iNCLUDE /etc/passwd"}, "line 1, iNCLUDE: what it names"}, Row{"include_with_a_sign", {"Name=gpu", "Include=/x"}, "Include: what it names"}, Row{"node_name", {"nodename=x Name=gpu"}, "line 1, nodename: it is put"},
        Row{"line_break", {"Name=gpu\nInclude x"}, "is not one line"}, Row{"quoted", {"Name=gpu File=\"/dev/a b\""}, "is not one line"}, Row{"comment", {"# gpus"}, "is not one line"}, Row{"escape", {"Name=gpu \\"}, "is not one line"},
        Row{"empty", {""}, "a line holds"}, Row{"order", {"File=/dev/nvidia0 Name=gpu"}, "line 1, File: a line begins with Name"}, Row{"no_name", {"AutoDetect=nvml Count=3"}, "a line begins with Name"},
        Row{"other_name", {"Name=fpga Count=2"}, "\"fpga\" is no resource"}, Row{"count", {"Name=gpu File=/dev/nvidia[0-3] Count=5"}, "line 1, Count: 5 is said, and the files make 4"},
        Row{"count_of_multiple", {"Name=gpu MultipleFiles=/dev/a,/dev/b Count=2"}, "the files make 1"}, Row{"count_text", {"Name=gpu Count=many"}, "\"many\" is not a whole number"}, Row{"zero", {"Name=gpu Count=0"}, "from 1"},
        Row{"twice", {"Name=gpu File=/dev/a Files=/dev/b"}, "Files: it is given twice"}, Row{"cores_twice", {"Name=gpu CPUs=0 Cores=1"}, "Cores: it is given twice"}, Row{"both", {"Name=gpu File=/dev/a MultipleFiles=/dev/b,/dev/c"}, "goes with no File"},
        Row{"one_of_multiple", {"Name=gpu MultipleFiles=/dev/a"}, "use File"}, Row{"relative", {"Name=gpu File=dev/a"}, "names no files"}, Row{"open", {"Name=gpu File=/dev/a[0-3"}, "names no files"},
        Row{"backwards", {"Name=gpu File=/dev/a[3-0]"}, "names no files"}, Row{"huge", {"Name=gpu File=/dev/a[0-99999999]"}, "names no files"}, Row{"behind", {"Name=gpu File=/dev/a[0]b"}, "names no files"},
        Row{"cores", {"Name=gpu Cores=a"}, "\"a\" is no list"}, Row{"type", {"Name=gpu Type=a:b"}, "not one word"}, Row{"links", {"Name=gpu Links=x"}, "no list of numbers"}, Row{"flag", {"Name=gpu Flags=nvidia"}, "does not know nvidia"},
        Row{"no_env", {"Name=gpu Flags=no_gpu_env,opencl_env"}, "goes with no other"}, Row{"other_env", {"Name=gpu File=/dev/a Flags=opencl_env", "Name=gpu File=/dev/b Flags=amd_gpu_env"}, "line 2, Flags: the variables"},
        Row{"later_env", {"Name=gpu File=/dev/a", "Name=gpu File=/dev/b Flags=amd_gpu_env"}, "line 2, Flags: the variables"}, Row{"some_files", {"Name=gpu Type=a File=/dev/a", "Name=gpu Type=b Count=2"}, "line 2, File: some lines"},
        Row{"some_types", {"Name=gpu File=/dev/a", "Name=gpu Type=b File=/dev/b"}, "line 2, Type: some lines"}, Row{"again", {"Name=gpu Count=1", "Name=gpu Count=1"}, "say it in one"},
        Row{"detect_what", {"AutoDetect=yes"}, "none of nvml"}, Row{"detect_two", {"AutoDetect=nvml", "AutoDetect=off"}, "line 2, AutoDetect: another line"}),
    [](const auto& row) { return row.param.name; });

TEST(GresLines, AreBounded) {
  EXPECT_THAT(check_gres_lines(std::vector<std::string>(65, "Name=gpu")), ElementsAre(HasSubstr("at most 64")));
  EXPECT_THAT(check_gres_lines({"Name=gpu Type=" + std::string(2000, 'a')}), ElementsAre(HasSubstr("a line holds")));
}

}  // namespace
}  // namespace fairlead::api
