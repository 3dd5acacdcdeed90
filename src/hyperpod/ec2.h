// SPDX-License-Identifier: Apache-2.0
// The part of EC2 that is about volumes and their snapshots, over Volumes and Snapshots: availability zones are pools. Source: docs.aws.amazon.com, EC2 API reference 2016-11-15.
#pragma once
#include <string>
#include <string_view>

#include "http/message.h"
#include "hyperpod/front.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {

bool is_ec2_action(std::string_view action);
// What is inside of <ACTIONResponse> behind the request's id. CreateVolume, CopyVolumes, DescribeVolumes, ModifyVolume, DescribeVolumesModifications, DeleteVolume, CreateSnapshot, DescribeSnapshots, DeleteSnapshot, DescribeAvailabilityZones.
// Needs the permission of the same name; conditions may ask for tags. CreateVolume and CopyVolumes with a ClientToken are done once; its KmsKeyId needs that key's permission, too (key_policy.h). MultiAttachEnabled is refused by name.
Answer<std::string> answer_ec2(const std::string& action, const http::Query& form, const Call& call, const Sources& sources);

}  // namespace fairlead::hyperpod
