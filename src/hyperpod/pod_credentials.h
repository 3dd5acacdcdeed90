// SPDX-License-Identifier: Apache-2.0
// What a new pod gets so that unmodified SDKs in it find this site and have the role of its service account: environment, a projected token, the site's authority. Pure. Names are those of Amazon EKS (docs.aws.amazon.com, "IAM roles for service accounts", "EKS Pod
// Identity"). docs/design/061-credentials.md.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "api/pod_identity.h"
#include "base/result.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::hyperpod {

// How pods reach this site.
struct PodSite {
  std::string endpoint;  // "https://HOST[:PORT]"
  std::string region, ca_pem;
};

// A JSON Patch (RFC 6902) for a pod that is made; an empty list: nothing is to be added. `association`: of its account; nullptr: none. An association counts before the account's annotation, as in EKS.
// What a container says itself stays; a pod that has it all gets nothing, so that it may be asked again.
kube::Json plan_pod_credentials(const kube::Json& pod, const kube::Json& account, const kube::Json* association, const PodSite& site);

// Looks up one object. NotFound: it is not there.
using Look = std::function<Result<kube::Json>(const kube::Resource& resource, const kube::ObjectKey& key)>;
// The same with account and association looked up. An error: one of them cannot be read.
Result<kube::Json> plan_pod_credentials(const kube::Json& pod, const std::string& space, const Look& look, const PodSite& site);

// The AdmissionReview (admission.k8s.io/v1) that answers one about a pod that is made: it is always allowed, with the patch or with a warning. Nothing: it is no such review.
std::optional<kube::Json> answer_pod_review(const kube::Json& review, const Look& look, const PodSite& site);

// The MutatingWebhookConfiguration by which a kube-apiserver asks. `service` "" : by `url`, else by that Service of `space` at 443. Pods of `space` are left out; where nobody answers, pods are made without.
struct PodWebhook {
  std::string url, space, service, path, ca_pem;
};
kube::Json pod_webhook_configuration(const PodWebhook& webhook);

}  // namespace fairlead::hyperpod
