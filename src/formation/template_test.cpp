// SPDX-License-Identifier: Apache-2.0
#include "formation/template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/rng.h"
#include "formation/evaluate.h"

namespace fairlead::formation {
namespace {

using testing::HasSubstr;

Template read(const std::string& text) {
  auto out = read_template(text);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? *out : Template();
}
std::string refusal(const std::string& text) {
  const auto out = read_template(text);
  return out ? "" : out.error().message;
}
const Place place{.account = "111122223333", .region = "fairlead-1", .stack_id = "arn:stack", .stack_name = "lab"};

// Properties of resource C of a template with these parameters.
std::string properties(const std::string& text, const Values& given = {}) {
  const auto of = read_template(text);
  if (!of) return of.error().message;
  const auto parameters = settle_parameters(*of, given);
  if (!parameters) return parameters.error().message;
  const auto evaluation = Evaluation::make(*of, *parameters, place);
  if (!evaluation) return evaluation.error().message;
  const Resource* one = of->resource("C");
  if (one == nullptr || !evaluation->is_made(*one)) return "not made";
  const auto out = evaluation->properties(*one);
  return out ? kube::print_json(*out) : out.error().message;
}
std::string with(const std::string& properties, const std::string& before = "") { return before + "Resources:\n  C:\n    Type: T\n    Properties:\n      P: " + properties + "\n"; }

constexpr const char* kWhole = R"(
AWSTemplateFormatVersion: 2010-09-09
Description: a cluster
Parameters:
  Count: {Type: Number, Default: 2, MinValue: 1, MaxValue: 8}
  Secret: {Type: String, NoEcho: true, Default: hush}
  Stage: {Type: String, AllowedValues: [dev, prod], Default: dev}
Mappings:
  Types:
    dev: {gpu: ml.g5.xlarge}
    prod: {gpu: ml.p5.48xlarge}
Conditions:
  Big: !And [!Equals [!Ref Stage, prod], !Not [!Condition Small]]
  Small: !Equals [!Ref Count, 1]
Resources:
  C:
    Type: AWS::SageMaker::Cluster
    DeletionPolicy: Retain
    Properties:
      Name: !Sub "${AWS::StackName}-${Stage}"
      Type: !FindInMap [Types, !Ref Stage, gpu]
      Count: !Ref Count
      Mode: !If [Big, Continuous, !Ref AWS::NoValue]
      Role: !Join ["", ["arn:", !Ref AWS::Partition, ":iam::", !Ref AWS::AccountId, ":role/x"]]
  D:
    Type: AWS::SageMaker::Cluster
    Condition: Big
    DependsOn: C
Outputs:
  Arn: {Value: !GetAtt C.ClusterArn, Description: of it}
  Far: {Value: !Ref D, Condition: Big}
)";

TEST(Template, AWholeOneIsRead) {
  const Template of = read(kWhole);
  EXPECT_EQ(of.description, "a cluster");
  ASSERT_EQ(of.resources.size(), 2u);
  EXPECT_EQ(of.resource("C")->deletion, DeletionPolicy::Retain);
  EXPECT_EQ(of.resource("D")->depends_on, std::vector<std::string>{"C"});
  EXPECT_TRUE(of.parameter("Secret")->hidden);
  EXPECT_EQ(properties(kWhole), R"({"Name":"lab-dev","Type":"ml.g5.xlarge","Count":"2","Role":"arn:aws:iam::111122223333:role/x"})");
  EXPECT_EQ(properties(kWhole, {{"Stage", "prod"}}), R"({"Name":"lab-prod","Type":"ml.p5.48xlarge","Count":"2","Mode":"Continuous","Role":"arn:aws:iam::111122223333:role/x"})");
}

TEST(Template, JsonAndYamlMeanTheSame) {
  const char* json = R"({"Parameters": {"A": {"Type": "CommaDelimitedList", "Default": "x, y"}}, "Resources": {"C": {"Type": "T", "Properties": {"P": {"Fn::Join": ["-", {"Ref": "A"}]}, "Q": {"Fn::Select": [1, {"Ref": "A"}]}}}}})";
  const char* yaml = "Parameters: {A: {Type: CommaDelimitedList, Default: 'x, y'}}\nResources: {C: {Type: T, Properties: {P: !Join ['-', !Ref A], Q: !Select [1, !Ref A]}}}";
  EXPECT_EQ(properties(json), R"({"P":"x-y","Q":"y"})");
  EXPECT_EQ(properties(yaml), properties(json));
}

struct Row {
  const char* name;
  std::string text, want;
};
struct Functions : testing::TestWithParam<Row> {};
TEST_P(Functions, GiveTheirValue) { EXPECT_THAT(properties(GetParam().text), HasSubstr(GetParam().want)); }
INSTANTIATE_TEST_SUITE_P(
    All, Functions,
    testing::Values(Row{"sub_with_values", with("!Sub ['${a}/${AWS::Region}', {a: 1}]"), R"("1/fairlead-1")"}, Row{"sub_of_a_literal", with("!Sub 'a ${!b} c'"), R"("a ${b} c")"}, Row{"split", with("!Split [',', 'a,b,']"), R"(["a","b",""])"},
                    Row{"base64", with("!Base64 abc"), "YWJj"}, Row{"getatt_in_properties", with("!GetAtt C.Arn"), "only Outputs may use"}, Row{"ref_of_a_resource", with("!Ref C"), "DependsOn"}, Row{"select_beyond", with("!Select [2, [a, b]]"), "nonexistent value at index 2"},
                    Row{"map_without_it", with("!FindInMap [M, a, x]", "Mappings: {M: {a: {b: c}}}\n"), "Unable to get mapping for M::a::x"}, Row{"list_in_a_map", with("!FindInMap [M, a, b]", "Mappings: {M: {a: {b: [c, d]}}}\n"), R"(["c","d"])"},
                    Row{"no_value_in_a_list", with("[a, !Ref 'AWS::NoValue', b]"), R"(["a","b"])"}, Row{"numbers_stay", with("[1, 2.5, true]"), "[1,2.5,true]"}, Row{"text_of_a_list", with("!Join ['', !Ref AWS::Region]"), "a list is expected"}),
    [](const auto& row) { return row.param.name; });

struct Refused : testing::TestWithParam<Row> {};
TEST_P(Refused, ByName) { EXPECT_THAT(refusal(GetParam().text), HasSubstr(GetParam().want)); }
INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(Row{"empty", "  ", "the template is empty"}, Row{"no_resources", "Description: x", "At least one Resources member must be defined"}, Row{"unknown_section", "Resorces: {}", "Invalid template property or properties [Resorces]"},
                    Row{"transform", "Transform: AWS::Serverless-2016-10-31\nResources: {C: {Type: T}}", "Transform is not served here"}, Row{"version", "AWSTemplateFormatVersion: 2020-01-01\nResources: {C: {Type: T}}", "2010-09-09 is expected"},
                    Row{"unknown_function", with("!ImportValue x"), "Fn::ImportValue is not served here"}, Row{"condition_function_in_properties", with("!Equals [a, b]"), "stands in Conditions alone"}, Row{"not_alone", with("{Ref: C, Other: x}"), "stands alone"},
                    Row{"ref_to_nothing", with("!Ref Nobody"), "Unresolved resource dependencies [Nobody]"}, Row{"sub_to_nothing", with("!Sub '${Nobody}'"), "[Nobody]"}, Row{"sub_without_end", with("!Sub '${a'"), "without an end"}, Row{"getatt_to_nothing", with("!GetAtt Nobody.Arn"), "undefined resource Nobody"},
                    Row{"condition_to_nothing", with("!If [None, a, b]"), "unresolved condition dependency None"}, Row{"if_of_two", with("!If [a, b]"), "Fn::If"}, Row{"circle_of_conditions", with("x", "Conditions: {A: !Not [!Condition B], B: !Not [!Condition A]}\n"), "Circular dependency between conditions"},
                    Row{"circle_of_resources", "Resources: {A: {Type: T, DependsOn: B}, B: {Type: T, DependsOn: [A]}}", "Circular dependency between resources"}, Row{"depends_on_nothing", "Resources: {A: {Type: T, DependsOn: B}}", "Unresolved resource dependencies [B] in"},
                    Row{"null", with("~"), "'null' values are not allowed"}, Row{"name_of_resource", "Resources: {a-b: {Type: T}}", "non alphanumeric"}, Row{"no_type", "Resources: {C: {}}", "must contain a Type member"}, Row{"update_policy", "Resources: {C: {Type: T, UpdatePolicy: {}}}", "UpdatePolicy"},
                    Row{"snapshot", "Resources: {C: {Type: T, DeletionPolicy: Snapshot}}", "DeletionPolicy Snapshot is not served here"}, Row{"export", "Resources: {C: {Type: T}}\nOutputs: {O: {Value: x, Export: {Name: y}}}", "Export is not served here"},
                    Row{"parameter_type", "Parameters: {P: {Type: 'AWS::EC2::VPC::Id'}}\nResources: {C: {Type: T}}", "Type AWS::EC2::VPC::Id is not served here"}, Row{"pattern", "Parameters: {P: {Type: String, AllowedPattern: '(?=x)y'}}\nResources: {C: {Type: T}}", "AllowedPattern"},
                    Row{"twice", "Resources: {C: {Type: T}, C: {Type: T}}", "occurs twice"}, Row{"twice_in_json", R"({"Resources": {"C": {"Type": "T"}, "C": {"Type": "T"}}})", "is there twice"}, Row{"too_long", std::string(51'201, ' '), "51200"}, Row{"two_documents", "Resources: {C: {Type: T}}\n---\na: b", "one document is expected"},
                    Row{"tagged_key", "Resources: {!Ref C: {Type: T}}", "a key cannot have the tag"}, Row{"both", "Parameters: {C: {Type: String}}\nResources: {C: {Type: T}}", "both a parameter and a resource"}),
    [](const auto& row) { return row.param.name; });

// By steps, not by time: what would take long is refused before it is done.
TEST(Patterns, HaveABudget) {
  const Template list = read("Parameters: {P: {Type: CommaDelimitedList, AllowedPattern: '(x|y){1000}|.{0,1000}'}}\nResources: {C: {Type: T}}");
  const auto elements = [](int count) {
    std::string out = "a";
    for (int i = 1; i < count; ++i) out += ",a";
    return out;
  };
  EXPECT_TRUE(settle_parameters(list, {{"P", elements(256)}}));
  EXPECT_THAT(settle_parameters(list, {{"P", elements(257)}}).error().message, HasSubstr("has 257 elements; a list has at most 256 here"));
  // Over all parameters.
  std::string declared = "Parameters:\n";
  Values given;
  for (int i = 0; i < 8; ++i) {
    declared += fmt::format("  P{}: {{Type: String, AllowedPattern: '(x|y){{1000}}|.{{0,1000}}'}}\n", i);
    given[fmt::format("P{}", i)] = std::string(1'000, 'x');
  }
  const auto all = read_template(declared + "Resources: {C: {Type: T}}");
  ASSERT_TRUE(all) << all.error().message;
  const auto settled = settle_parameters(*all, given);
  ASSERT_FALSE(settled);
  EXPECT_THAT(settled.error().message, HasSubstr("the patterns of this template"));
  std::string many = "Parameters:\n";
  for (int i = 0; i < 200; ++i) many += fmt::format("  P{}: {{Type: String, AllowedPattern: '(x|y){{1000}}|.{{0,1000}}|z{{1000}}'}}\n", i);
  EXPECT_THAT(refusal(many + "Resources: {C: {Type: T}}"), HasSubstr("the patterns of this template are too large"));
  // What people write has room.
  std::string usual = "Parameters:\n";
  Values names;
  for (int i = 0; i < 200; ++i) {
    usual += fmt::format("  P{}: {{Type: String, AllowedPattern: '[a-zA-Z][-a-zA-Z0-9]{{0,62}}'}}\n", i);
    names[fmt::format("P{}", i)] = std::string(60, 'x');
  }
  EXPECT_TRUE(settle_parameters(read(usual + "Resources: {C: {Type: T}}"), names));
}

struct ParameterRow {
  const char* name;
  std::string declared, value, want;  // want: empty: it is taken
};
struct Parameters : testing::TestWithParam<ParameterRow> {};
TEST_P(Parameters, AreChecked) {
  const auto& row = GetParam();
  const Template of = read("Parameters: {P: {" + row.declared + "}}\nResources: {C: {Type: T}}");
  const auto settled = settle_parameters(of, {{"P", row.value}});
  if (row.want.empty()) EXPECT_TRUE(settled) << settled.error().message;
  else EXPECT_THAT(settled ? "" : settled.error().message, HasSubstr(row.want));
}
INSTANTIATE_TEST_SUITE_P(All, Parameters,
                         testing::Values(ParameterRow{"number", "Type: Number, MinValue: 1, MaxValue: 4", "4", ""}, ParameterRow{"too_large", "Type: Number, MinValue: 1, MaxValue: 4", "5", "not greater than 4"}, ParameterRow{"no_number", "Type: Number", "4x", "must be a number"},
                                         ParameterRow{"infinite", "Type: Number", "inf", "must be a number"}, ParameterRow{"allowed", "Type: String, AllowedValues: [a, b]", "c", "must be one of AllowedValues: a, b"}, ParameterRow{"pattern_of_the_whole", "Type: String, AllowedPattern: '[a-z]+'", "ab1", "must match pattern [a-z]+"},
                                         ParameterRow{"constraint", "Type: String, AllowedPattern: '[a-z]+', ConstraintDescription: small letters", "A", "failed to satisfy constraint: small letters"}, ParameterRow{"short", "Type: String, MinLength: 3", "\xC3\xA4\xC3\xA4", "at least 3"},
                                         ParameterRow{"long_in_characters", "Type: String, MaxLength: 2", "\xC3\xA4\xC3\xA4", ""}, ParameterRow{"list", "Type: CommaDelimitedList, AllowedValues: [a, b]", "a, b", ""}, ParameterRow{"list_of_numbers", "Type: List<Number>", "1,x", "must be a number"},
                                         ParameterRow{"hidden_is_not_told", "Type: String, NoEcho: true, AllowedPattern: '[a-z]+'", "S3CRET", "must match pattern"}, ParameterRow{"too_long", "Type: String", std::string(4'097, 'x'), "4096"}),
                         [](const auto& row) { return row.param.name; });

TEST(TemplateParameters, MissingAndUnknownOnesAreNamed) {
  const Template of = read("Parameters: {P: {Type: String}, Q: {Type: String}}\nResources: {C: {Type: T}}");
  EXPECT_THAT(settle_parameters(of, {}).error().message, HasSubstr("Parameters: [P, Q] must have values"));
  EXPECT_THAT(settle_parameters(of, {{"P", "a"}, {"Q", "b"}, {"R", "c"}}).error().message, HasSubstr("[R] do not exist in the template"));
  const Template hidden = read("Parameters: {P: {Type: String, NoEcho: true, AllowedPattern: '[a-z]+'}}\nResources: {C: {Type: T}}");
  EXPECT_EQ(settle_parameters(hidden, {{"P", "S3CRET"}}).error().message.find("S3CRET"), std::string::npos);
}

TEST(TemplateOutputs, AreComputedOfWhatIsThere) {
  const Template of = read(kWhole);
  const auto evaluation = Evaluation::make(of, *settle_parameters(of, {{"Stage", "prod"}}), place);
  ASSERT_TRUE(evaluation);
  const auto outputs = evaluation->outputs([](const std::string& id, const std::string& name) { return std::optional(id + "/" + name); });
  ASSERT_TRUE(outputs);
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_EQ((*outputs)[0].value, "C/ClusterArn");
  EXPECT_EQ((*outputs)[1].value, "D/Ref");
  EXPECT_THAT(evaluation->outputs([](const std::string&, const std::string&) { return std::optional<std::string>(); }).error().message, HasSubstr("resource C has no attribute ClusterArn"));
}

// A small template must not become a large one.
TEST(TemplateLimits, TextThatDoublesIsRefused) {
  std::string nested = "x";
  for (int i = 0; i < 30; ++i) nested = "!Sub ['${a}${a}', {a: " + nested + "}]";
  EXPECT_THAT(properties(with(nested)), HasSubstr("more than 4194304 bytes"));
}

TEST(TemplateLimits, OutputsAreShort) {
  const Template of = read("Parameters: {P: {Type: String}}\nResources: {C: {Type: T}}\nOutputs: {O: {Value: !Sub '${P}${P}'}}");
  const auto evaluation = Evaluation::make(of, {{"P", std::string(3'000, 'x')}}, place);
  ASSERT_TRUE(evaluation);
  EXPECT_THAT(evaluation->outputs([](const std::string&, const std::string&) { return std::optional<std::string>(); }).error().message, HasSubstr("at most 4096 bytes"));
}

// No bytes bring it down, and equal ones mean the same.
TEST(TemplateProperty, ChangedTemplatesAreReadOrRefused) {
  const std::string whole = kWhole;
  int fine = 0;
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    Rng rng(seed);
    std::string text = whole;
    for (auto n = rng.below(4) + 1; n > 0; --n) {
      const auto at = rng.below(text.size());
      switch (rng.below(4)) {
        case 0: text.erase(at, rng.below(12)); break;
        case 1: text[at] = static_cast<char>(rng.below(256)); break;
        case 2: text.insert(at, text.substr(rng.below(text.size()), rng.below(20))); break;
        default: text.insert(at, std::string(1, "!{}[]:,&*|>'\"\n -$"[rng.below(17)])); break;
      }
    }
    const std::string once = properties(text);
    ASSERT_EQ(once, properties(text)) << "seed " << seed;
    fine += once.starts_with("{") ? 1 : 0;
  }
  EXPECT_GT(fine, 100);
  EXPECT_LT(fine, 2'900);
}

}  // namespace
}  // namespace fairlead::formation
