// SPDX-License-Identifier: Apache-2.0
// Values as Go's %#v prints them: Kubernetes' field errors show structures so. Pure.
#pragma once
#include <string>

#include "kube/json.h"

namespace fairlead::apiserver {

std::string go_string(const kube::Json& text);               // "x", quoted; of anything else the empty string
std::string go_string_map(const kube::Json& map);            // map[string]string{"a":"b"}, by key; null: map[string]string(nil)
std::string go_int_or_string(const kube::Json& value);       // intstr.IntOrString{Type:1, IntVal:0, StrVal:"50%"}
std::string go_label_selector(const kube::Json& selector);   // v1.LabelSelector{MatchLabels:..., MatchExpressions:...}
std::string go_taint(const kube::Json& taint);               // core.Taint{Key:"k", Value:"", Effect:"NoSchedule", TimeAdded:<nil>}
std::string go_port_key(const kube::Json& port);             // core.ServicePort{...} with protocol and port alone: what must be unique

}  // namespace fairlead::apiserver
