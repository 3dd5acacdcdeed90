// SPDX-License-Identifier: Apache-2.0
// Small pure parts: texts, kinds by name, words of run, readiness, completion.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>

#include "base/files.h"
#include "base/process.h"
#include "cli/program.h"
#include "cli/readiness.h"
#include "cli/session.h"
#include "cli/slurm_words.h"
#include "cli/text.h"

namespace fairlead::cli {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Token, IsTakenFromWhatScontrolPrints) {
  EXPECT_EQ(token_of("SLURM_JWT=ab-C_1.d.e\n"), "ab-C_1.d.e");
  EXPECT_EQ(token_of("note\nSLURM_JWT=a.b.c"), "a.b.c");
  for (const char* none : {"", "error", "SLURM_JWT=", "XSLURM_JWT=a", "SLURM_JWT=a b", "SLURM_JWT=a;b"}) EXPECT_EQ(token_of(none), "") << none;
}
TEST(Token, NamesThatWouldBeWordsOfScontrolAreRefused) {
  for (const char* good : {"ada", "a_b", "u.x-1", "_x"}) EXPECT_EQ(trouble_of_user(good), "") << good;
  for (const char* bad : {"", "-a", "1a", "a b", "a=b", "a,b", "a\nb", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) EXPECT_NE(trouble_of_user(bad), "") << bad;
}

TEST(Text, WidthsCountWhatIsSeen) {
  EXPECT_EQ(columns_of("abc"), 3);
  EXPECT_EQ(columns_of("●…█"), 3);
  EXPECT_EQ(columns_of("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(cut_to("abcdef", 4, {.unicode = false}), "abc~");
  EXPECT_EQ(cut_to("äöüß", 3, {}), "äö…");
  EXPECT_EQ(cut_to("abc", 3, {}), "abc");
}

TEST(Text, OutsideTextsCannotMoveTheCursor) { EXPECT_EQ(clean("a\x1b[2Jb\nc\x7f"), "a [2Jb c "); }

TEST(Text, BarsShowSomethingForSomething) {
  const Look plain{.unicode = false};
  EXPECT_EQ(bar(0, 4, 4, plain), "....");
  EXPECT_EQ(bar(0.01, 4, 4, plain), "#...");
  EXPECT_EQ(bar(2, 4, 4, plain), "##..");
  EXPECT_EQ(bar(9, 4, 4, plain), "####");
  EXPECT_EQ(bar(1, 0, 4, plain), "#...");
}

TEST(Text, RowsAreAlignedAndCut) {
  const std::vector<Row> rows{{{.text = "NAME"}, {.text = "N", .right = true}, {.text = "WHY"}}, {{.text = "worker-0"}, {.text = "12", .right = true}, {.text = "a long reason indeed"}}};
  EXPECT_EQ(draw_rows(rows, " ", {.width = 24, .unicode = false}), " NAME       N  WHY\n worker-0  12  a long r~\n");
}

TEST(Text, SecondsReadWell) {
  EXPECT_EQ(print_seconds(0.42), "0.4 s");
  EXPECT_EQ(print_seconds(42.4), "42 s");
  EXPECT_EQ(print_seconds(185), "3 min 5 s");
  EXPECT_EQ(print_seconds(600), "10 min");
}

std::vector<ApiKind> some_kinds() {
  auto parsed = kube::parse_yaml(R"(
items:
- metadata: {}
  versions:
  - version: v1
    resources:
    - {resource: pods, scope: Namespaced, singularResource: pod, responseKind: {kind: Pod}, shortNames: [po], categories: [all]}
    - {resource: events, scope: Namespaced, singularResource: event, responseKind: {kind: Event}, shortNames: [ev]}
- metadata: {name: events.k8s.io}
  versions:
  - version: v1
    resources:
    - {resource: events, scope: Namespaced, singularResource: event, responseKind: {kind: Event}, shortNames: [ev]}
- metadata: {name: fairlead.dev}
  versions:
  - version: v1alpha1
    resources:
    - {resource: machines, scope: Cluster, singularResource: machine, responseKind: {kind: Machine}, shortNames: [mc]}
)");
  return parse_discovery(parsed->at(0));
}

struct Typed {
  const char* name;
  const char* text;
  const char* want;  // group/plural; empty: unknown
};
class KindNames : public testing::TestWithParam<Typed> {};
TEST_P(KindNames, AreFoundAsPeopleTypeThem) {
  const auto kinds = some_kinds();
  const ApiKind* kind = match_kind(kinds, GetParam().text);
  EXPECT_EQ(kind ? kind->resource.group + "/" + kind->resource.plural : "", GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(Cli, KindNames,
                         testing::Values(Typed{"plural", "pods", "/pods"}, Typed{"singular", "pod", "/pods"}, Typed{"short_name", "po", "/pods"}, Typed{"kind", "Pod", "/pods"},
                                         Typed{"core_first", "events", "/events"}, Typed{"with_group", "events.events.k8s.io", "events.k8s.io/events"}, Typed{"group_prefix", "machines.fairlead", "fairlead.dev/machines"},
                                         Typed{"own_short_name", "mc", "fairlead.dev/machines"}, Typed{"wrong_group", "pods.fairlead.dev", ""}, Typed{"unknown", "podz", ""}),
                         [](const auto& row) { return row.param.name; });

TEST(Discovery, TellsScope) {
  const auto kinds = some_kinds();
  EXPECT_TRUE(match_kind(kinds, "pods")->resource.namespaced);
  EXPECT_FALSE(match_kind(kinds, "machines")->resource.namespaced);
}

struct Line {
  const char* name;
  std::vector<std::string> words, options;
  const char* script;
  std::vector<std::string> command;
};
class RunWords : public testing::TestWithParam<Line> {};
TEST_P(RunWords, AreSplit) {
  const Words words = split_words(GetParam().words, [](const std::string& word) { return word.ends_with(".sh"); });
  EXPECT_EQ(words.options, GetParam().options);
  EXPECT_EQ(words.script, GetParam().script);
  EXPECT_EQ(words.command, GetParam().command);
}
INSTANTIATE_TEST_SUITE_P(Cli, RunWords,
                         testing::Values(Line{"command", {"hostname", "-f"}, {}, "", {"hostname", "-f"}}, Line{"value_behind", {"-N", "2", "hostname"}, {"-N", "2"}, "", {"hostname"}},
                                         Line{"value_joined", {"-N2", "--gres=gpu:1", "nvidia-smi"}, {"-N2", "--gres=gpu:1"}, "", {"nvidia-smi"}},
                                         Line{"flag_without_value", {"-l", "hostname"}, {"-l"}, "", {"hostname"}}, Line{"script", {"-N", "2", "train.sh", "--steps", "5"}, {"-N", "2"}, "train.sh", {"--steps", "5"}},
                                         Line{"script_behind_flag", {"-x", "job.sh"}, {"-x"}, "job.sh", {}}, Line{"dashes_end_options", {"-N", "1", "--", "-odd"}, {"-N", "1"}, "", {"-odd"}}, Line{"nothing", {}, {}, "", {}}),
                         [](const auto& row) { return row.param.name; });

TEST(Quote, SurvivesTheShell) {
  for (const std::string& word : {std::string("plain"), std::string("two words"), std::string("it's"), std::string("$HOME`x`\"\\"), std::string(""), std::string("a\nb")}) {
    auto out = run_checked({.argv = {"sh", "-c", "printf %s " + shell_quote(word)}, .environment = {}, .working_directory = ""}, std::chrono::seconds(10));
    ASSERT_TRUE(out);
    EXPECT_EQ(*out, word);
  }
}

Json yaml(std::string_view text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}
struct Look2 {
  const char* name;
  const char* object;
  const char* node;
  Readiness::State want;
  const char* why;
};
class ReadinessOf : public testing::TestWithParam<Look2> {};
TEST_P(ReadinessOf, SaysWhatIsMissing) {
  const Readiness got = readiness_of(yaml(GetParam().object), *GetParam().node ? yaml(GetParam().node) : Json());
  EXPECT_EQ(static_cast<int>(got.state), static_cast<int>(GetParam().want));
  EXPECT_THAT(got.why, HasSubstr(GetParam().why));
}
using State = Readiness::State;
INSTANTIATE_TEST_SUITE_P(
    Cli, ReadinessOf,
    testing::Values(Look2{"new_machine", "{kind: Machine}", "", State::Waiting, "not seen yet"},
                    Look2{"failing_machine", "{kind: Machine, status: {phase: Pending, conditions: [{type: Ready, status: 'False', reason: StepFailed, message: no bridge}]}}", "", State::Waiting, "no bridge"},
                    Look2{"refused_machine", "{kind: Machine, status: {phase: Refused, conditions: [{type: Ready, status: 'False', message: bad cpu}]}}", "", State::Refused, "bad cpu"},
                    Look2{"machine_without_node", "{kind: Machine, status: {phase: Running}}", "", State::Waiting, "not registered"},
                    Look2{"machine_node_not_ready", "{kind: Machine, status: {phase: Running}}", "{status: {conditions: [{type: Ready, status: 'False', message: no network}]}}", State::Waiting, "no network"},
                    Look2{"machine_ready", "{kind: Machine, status: {phase: Running, address: 10.77.1.1}}", "{status: {conditions: [{type: Ready, status: 'True'}]}}", State::Ready, "10.77.1.1"},
                    Look2{"machine_off_as_asked", "{kind: Machine, status: {phase: 'Off'}}", "", State::Ready, "off"},
                    Look2{"cluster_coming", "{kind: SlurmCluster, status: {phase: Reconciling, conditions: [{type: WorkersAvailable, status: 'False', message: 1 of 2 workers}]}}", "", State::Waiting, "1 of 2 workers"},
                    Look2{"cluster_ready", "{kind: SlurmCluster, status: {phase: Available}}", "", State::Ready, ""},
                    Look2{"groups_coming", "{kind: Cluster, metadata: {generation: 1}, status: {phase: InService, summary: 1/2, observedGeneration: 1, instanceGroups: [{instanceGroupName: gpu, current: 1, target: 2, message: no machine}]}}", "", State::Waiting, "1/2 instances run; gpu: no machine"},
                    Look2{"groups_changed", "{kind: Cluster, metadata: {generation: 2}, status: {phase: InService, observedGeneration: 1}}", "", State::Waiting, "not seen yet"},
                    Look2{"groups_ready", "{kind: Cluster, metadata: {generation: 1}, status: {phase: InService, summary: 2/2, observedGeneration: 1, instanceGroups: [{instanceGroupName: gpu, current: 2, target: 2}]}}", "", State::Ready, "2/2"},
                    Look2{"groups_wrong", "{kind: Cluster, metadata: {generation: 2}, status: {phase: InService, message: no such type, observedGeneration: 2, conditions: [{type: SpecValid, status: 'False'}]}}", "", State::Refused, "no such type"},
                    Look2{"groups_failed", "{kind: Cluster, status: {phase: Failed, message: no such type}}", "", State::Refused, "no such type"},
                    Look2{"pod_pulling", "{kind: Pod, status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ErrImageNeverPull, message: no image x}}}]}}", "", State::Waiting, "a: no image x"},
                    Look2{"pod_unschedulable", "{kind: Pod, status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: 0/2 nodes}]}}", "", State::Waiting, "0/2 nodes"},
                    Look2{"pod_done", "{kind: Pod, status: {phase: Succeeded}}", "", State::Ready, "completed"}, Look2{"claim", "{kind: PersistentVolumeClaim, status: {phase: Pending}}", "", State::Waiting, "Pending"},
                    Look2{"config_map", "{kind: ConfigMap}", "", State::Ready, ""}),
    [](const auto& row) { return row.param.name; });

class Tree : public testing::Test {
 protected:
  SystemClock clock_;
  Context context_{.globals = {}, .hooks = {}, .clock = clock_, .own_dir = "/", .action = {}};
  std::unique_ptr<CLI::App> app_ = make_tree(context_);
};

TEST_F(Tree, EveryCommandHasHelpWithAnExample) {
  const std::function<void(const CLI::App*, const std::string&)> look = [&](const CLI::App* at, const std::string& path) {
    EXPECT_FALSE(at->get_description().empty()) << path;
    EXPECT_THAT(at->get_footer(), HasSubstr("fairlead ")) << path;
    for (const CLI::App* sub : at->get_subcommands([](const CLI::App*) { return true; })) look(sub, path + " " + sub->get_name());
  };
  look(app_.get(), "fairlead");
}

TEST_F(Tree, CompletionKnowsEveryCommandAndIsGoodShell) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(*app_, shell);
    ASSERT_TRUE(script);
    for (const char* command : {"up", "down", "status", "kubeconfig", "heal", "--state-dir", "--dry-run"}) EXPECT_THAT(*script, HasSubstr(std::string(command).substr(std::string_view(command).starts_with("--") ? 2 : 0))) << shell;
  }
  auto checked = run_checked({.argv = {"bash", "-n"}, .environment = {}, .working_directory = ""}, std::chrono::seconds(10), *completion_script(*app_, "bash"));
  EXPECT_TRUE(checked) << (checked ? "" : checked.error().message);
  EXPECT_FALSE(completion_script(*app_, "tcsh"));
}

// Each shell where it is installed: what Tab offers behind these words.
TEST_F(Tree, CompletionOffersCommandsAndNames) {
  struct Row {
    const char *line, *want;
  };
  for (const Row& row : {Row{"fairlead nod", "node"}, Row{"fairlead node k", "kill"}, Row{"fairlead -n demo node h", "heal"}, Row{"fairlead get po", "pods"}, Row{"fairlead completion z", "zsh"}, Row{"fairlead get -o wi", "wide"}, Row{"fairlead explain -o ya", "yaml"}}) {
    const std::string ask = fmt::format("COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _fairlead_words; echo \"${{COMPREPLY[*]}}\"", row.line);
    auto bash = run_checked({.argv = {"bash", "-c", *completion_script(*app_, "bash") + ask}, .environment = {}, .working_directory = ""}, std::chrono::seconds(10));
    ASSERT_TRUE(bash) << bash.error().message;
    EXPECT_EQ(*bash, std::string(row.want) + "\n") << row.line;
    if (!exists("/usr/bin/fish")) continue;
    auto fish = run_checked({.argv = {"fish", "--no-config", "-c", *completion_script(*app_, "fish") + fmt::format("complete -C '{}'", row.line)}, .environment = {}, .working_directory = ""}, std::chrono::seconds(10));
    ASSERT_TRUE(fish) << fish.error().message;
    EXPECT_THAT(*fish, testing::StartsWith(row.want)) << row.line;
  }
}

TEST_F(Tree, CompletionOfZshWorksBySourceAndByName) {
  const auto script = completion_script(*app_, "zsh");
  EXPECT_THAT(*script, testing::StartsWith("#compdef fairlead\n"));
  EXPECT_THAT(*script, HasSubstr("autoload -U compinit"));
  EXPECT_THAT(*script, testing::EndsWith("|| _bash_complete -F _fairlead_words\n"));
  if (!exists("/usr/bin/zsh")) return;
  auto zsh = run_checked({.argv = {"zsh", "-f", "-n"}, .environment = {}, .working_directory = ""}, std::chrono::seconds(10), *script);
  EXPECT_TRUE(zsh) << zsh.error().message;
}

TEST_F(Tree, OptionsOfEveryCommandMayStandBehindIt) {
  app_->parse("status -o json --state-dir /tmp/x --no-color");
  EXPECT_EQ(context_.globals.output, "json");
  EXPECT_EQ(context_.globals.state_dir, "/tmp/x");
  EXPECT_TRUE(context_.action);
}

TEST_F(Tree, RunPassesUnknownOptionsOn) {
  app_->parse("run --user ada -N 2 --gres=gpu:1 hostname -f");
  EXPECT_THAT(app_->get_subcommand("run")->remaining(), ElementsAre("-N", "2", "--gres=gpu:1", "hostname", "-f"));
}

TEST_F(Tree, ExecTakesCombinedFlagsAndACommandBehindDashes) {
  app_->parse("exec -it demo/login-0 -- ls -l");
  EXPECT_TRUE(context_.action);
  EXPECT_THROW(app_->parse("exec"), CLI::ParseError);
}

// JSON is a usual argument of AWS's tools; the parser of command lines would take a list apart.
TEST_F(Tree, WordsBehindDashesAreAsTheyWereTyped) {
  const char* const typed[] = {"fairlead", "exec", "demo/login-0", "--", "show", R"([{"a": 1, "b": [2]}])", "[a,b]", "[]", "", "-o", "--"};
  app_->parse(guard_words(static_cast<int>(std::size(typed)), typed));
  std::vector<std::string> words = app_->get_subcommand("exec")->get_option("command")->as<std::vector<std::string>>();
  EXPECT_THAT(words, ElementsAre("show", R"([{"a": 1, "b": [2]}])", "[a,b]", "[]", "", "-o", "--"));
}

TEST_F(Tree, AttachTakesAPodAndNoCommand) {
  app_->parse("attach -it demo/login-0 -c sshd");
  EXPECT_TRUE(context_.action);
  EXPECT_THROW(app_->parse("attach demo/login-0 -- ls"), CLI::ParseError);
}

TEST_F(Tree, LogsAreOfOneContainerOrOfAll) {
  app_->parse("logs demo/login-0 --all-containers --prefix --tail 5");
  EXPECT_TRUE(context_.action);
  EXPECT_THROW(app_->parse("logs demo/login-0 -c sshd --all-containers"), CLI::ParseError);
}

TEST(LinePrefixes, StandBeforeEveryLineHoweverItsPiecesCome) {
  LinePrefix prefix("[a] ");
  EXPECT_EQ(prefix.add("one\ntw"), "[a] one\n[a] tw");
  EXPECT_EQ(prefix.add("o\n"), "o\n");
  EXPECT_EQ(prefix.add(""), "");
  EXPECT_EQ(prefix.add("\nthree"), "[a] \n[a] three");
  EXPECT_EQ(LinePrefix("").add("x\n"), "x\n");
}

TEST(LineJoins, GiveWholeLinesToWhoSharesTheOutput) {
  LineJoin join;
  EXPECT_EQ(join.add("one\ntw"), "one\n");
  EXPECT_EQ(join.add("o"), "");
  EXPECT_EQ(join.add("\n\nx"), "two\n\n");
  EXPECT_EQ(join.rest(), "x");
  EXPECT_EQ(join.rest(), "");
  EXPECT_EQ(join.add(std::string(200'000, 'y')).size(), 200'000U);  // a line without end is not kept for ever
}

}  // namespace
}  // namespace fairlead::cli
