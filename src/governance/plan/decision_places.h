// SPDX-License-Identifier: Apache-2.0
// Inside of decision_record.h: what a decision log says of places, written and read again. Invalid: the field and what is expected.
#pragma once
#include "base/result.h"
#include "governance/plan/engine.h"
#include "kube/json.h"

namespace fairlead::governance {

kube::Json to_json(const PlaceAsk& ask);
kube::Json to_json(const EngineSpec::Places& places);
kube::Json to_json(const std::vector<TopologyNode>& nodes);
kube::Json to_json(const ContinuousEngine::OtherUse& use);
kube::Json to_json(const PlacesOf& places);  // one text for each pod set, as text(TopologyAssignment) has it

Result<PlaceAsk> read_place_ask(const kube::Json& json);
Result<EngineSpec::Places> read_places(const kube::Json& json);
Result<std::vector<TopologyNode>> read_nodes(const kube::Json& json);
Result<ContinuousEngine::OtherUse> read_other_use(const kube::Json& json);
kube::Json assignments_json(const PlacesOf& places);  // of a job that is adopted
PlacesOf read_assignments(const kube::Json& json);

}  // namespace fairlead::governance
