// SPDX-License-Identifier: Apache-2.0
#include "apiserver/budget_controller.h"

#include "apiserver/budget_plan.h"
#include "apiserver/kinds/resources.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

std::vector<kube::Controller::Source> BudgetController::sources() const {
  return {{workloads::budgets, "", kube::key_itself}, {kube::resources::pods, "", [this](const kube::Change& change) { return budgets_of(change); }}};
}

void BudgetController::start(const kube::Caches& caches) { budgets_ = &caches.of(workloads::budgets); }

std::vector<kube::ObjectKey> BudgetController::budgets_of(const kube::Change& change) const {
  std::vector<kube::ObjectKey> out;
  for (const Json& budget : budgets_->list(kube::space_of(change.object()))) {
    const auto selector = kube::LabelSelector::from_object(budget["spec"]["selector"]);
    const auto meant = [&](const std::optional<Json>& pod) { return pod && selector && selector->matches((*pod)["metadata"]["labels"]); };
    if (meant(change.before) || meant(change.after)) out.push_back(kube::key_of(budget));
  }
  return out;
}

Result<kube::Next> BudgetController::reconcile(const kube::ObjectKey& key) {
  auto budget = api_.get(workloads::budgets, key);
  if (!budget && budget.error().code == Code::NotFound) return kube::Next{};
  if (!budget) return std::unexpected(std::move(budget.error()));
  const auto selector = kube::LabelSelector::from_object((*budget)["spec"]["selector"]);
  std::vector<Json> meant;
  if (selector && !(*budget)["spec"]["selector"].is_null()) {
    auto pods = api_.list(kube::resources::pods, key.space, {.label_selector = selector->text()});
    if (!pods) return pass(std::move(pods.error()), "list pods of budget " + key.text());
    meant = std::move(pods->items);
  }
  BudgetPlan plan = plan_budget(*budget, meant, clock_.now());
  if (!(plan.status == (*budget)["status"])) {
    // Carries the version it was decided on: an eviction that came in between is not lost.
    budget->set("status", std::move(plan.status));
    auto written = api_.update_status(workloads::budgets, *budget);
    if (!written && written.error().code != Code::NotFound) return pass(std::move(written.error()), "status of budget " + key.text());
  }
  if (!plan.look_again_at) return kube::Next{};
  return kube::Next{std::max<std::chrono::nanoseconds>(*plan.look_again_at - clock_.now(), 1ms)};
}

}  // namespace fairlead::apiserver
