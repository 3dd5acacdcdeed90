// SPDX-License-Identifier: Apache-2.0
// Built-in kinds that the engine's own controllers serve and nobody else speaks of by name.
#pragma once
#include "kube/object.h"

namespace fairlead::apiserver::workloads {

inline const kube::Resource jobs{"batch", "v1", "jobs", "Job", true};
inline const kube::Resource endpoint_slices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
inline const kube::Resource budgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};
inline const kube::Resource network_policies{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true};
inline const kube::Resource storage_classes{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false};
inline const kube::Resource attributes_classes{"storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", false};
inline const kube::Resource attributes_classes_beta{"storage.k8s.io", "v1beta1", "volumeattributesclasses", "VolumeAttributesClass", false};
inline const kube::Resource quotas{"", "v1", "resourcequotas", "ResourceQuota", true};
inline const kube::Resource volumes{"", "v1", "persistentvolumes", "PersistentVolume", false};

// Labels, annotations and finalizers of Kubernetes' own controllers.
inline constexpr std::string_view job_finalizer = "batch.kubernetes.io/job-tracking";
inline constexpr std::string_view job_uid_label = "batch.kubernetes.io/controller-uid";
inline constexpr std::string_view job_name_label = "batch.kubernetes.io/job-name";
inline constexpr std::string_view job_index = "batch.kubernetes.io/job-completion-index";  // label and annotation
inline constexpr std::string_view slice_service_label = "kubernetes.io/service-name";
inline constexpr std::string_view slice_manager_label = "endpointslice.kubernetes.io/managed-by";
inline constexpr std::string_view slice_manager = "endpointslice-controller.k8s.io";
inline constexpr std::string_view volume_finalizer = "kubernetes.io/pv-protection";
inline constexpr std::string_view default_class_annotation = "storageclass.kubernetes.io/is-default-class";
inline constexpr std::string_view directory_provisioner = "fairlead.dev/directory";

inline bool is(const kube::Resource& resource, const kube::Resource& other) { return resource.group == other.group && resource.plural == other.plural; }

}  // namespace fairlead::apiserver::workloads
