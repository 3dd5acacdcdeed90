# SPDX-License-Identifier: Apache-2.0
"""Volumes and snapshots by boto3, on a site with the pool `here`: made, tagged, grown, copied, found, deleted; each thing is really so when the call or its waiter says so."""
import os
import time

import boto3
from botocore.exceptions import ClientError

ec2 = boto3.client('ec2')
QUICK = {'Delay': 1, 'MaxAttempts': 20}


def check(what, true):
    print(('ok    ' if true else 'FAIL  ') + what)
    if not true:
        raise SystemExit(1)


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        return error.response['Error']['Code'] == code
    return False


def wait(name, **ids):
    ec2.get_waiter(name).wait(WaiterConfig=QUICK, **ids)


check('the pool is an availability zone', [z['ZoneName'] for z in ec2.describe_availability_zones()['AvailabilityZones']] == ['here'])
tags = [{'ResourceType': 'volume', 'Tags': [{'Key': 'CSIVolumeName', 'Value': 'pvc-1'}]}]
made = [ec2.create_volume(AvailabilityZone='here', Size=2, VolumeType='gp3', ClientToken='one', TagSpecifications=tags)['VolumeId'] for _ in range(2)]
check('one volume for one token', made[0] == made[1])
volume = made[0]
wait('volume_available', VolumeIds=[volume])
found = ec2.describe_volumes(Filters=[{'Name': 'tag:CSIVolumeName', 'Values': ['pvc-*']}])['Volumes']
check('found by its tag', [(v['VolumeId'], v['Size'], v['State'], v['Attachments']) for v in found] == [(volume, 2, 'available', [])])
snapshot = ec2.create_snapshot(VolumeId=volume, Description='before')['SnapshotId']
wait('snapshot_completed', SnapshotIds=[snapshot])
about = ec2.describe_snapshots(SnapshotIds=[snapshot])['Snapshots'][0]
check('a snapshot', (about['VolumeId'], about['VolumeSize'], about['Description'], about['State']) == (volume, 2, 'before', 'completed'))
check('it grows', ec2.modify_volume(VolumeId=volume, Size=4)['VolumeModification']['TargetSize'] == 4)
for _ in range(200):
    time.sleep(0.1)
    if ec2.describe_volumes_modifications(VolumeIds=[volume])['VolumesModifications'][0]['ModificationState'] == 'completed':
        break
check('it has grown', ec2.describe_volumes(VolumeIds=[volume])['Volumes'][0]['Size'] == 4)
check('it does not shrink', refused('InvalidParameterValue', ec2.modify_volume, VolumeId=volume, Size=3))
if os.environ.get('POOL_OF_ENGINES'):
    ec2.modify_volume(VolumeId=volume, Iops=4000)
    wait('volume_available', VolumeIds=[volume])
    for _ in range(200):
        time.sleep(0.1)
        if (limit := ec2.describe_volumes(VolumeIds=[volume])['Volumes'][0].get('Iops')) == 4000:
            break
    check('limits change', limit == 4000)
else:
    check('limits are refused', refused('InvalidParameterCombination', ec2.modify_volume, VolumeId=volume, Iops=4000))
copy = ec2.create_volume(AvailabilityZone='here', SnapshotId=snapshot)['VolumeId']
wait('volume_available', VolumeIds=[copy])
check('a copy of the snapshot', ec2.describe_volumes(VolumeIds=[copy])['Volumes'][0]['SnapshotId'] == snapshot)
twin = ec2.copy_volumes(SourceVolumeId=volume, VolumeType='gp3', ClientToken='two', Size=5)['Volumes'][0]['VolumeId']
wait('volume_available', VolumeIds=[twin])
check('a copy of the volume', ec2.describe_volumes(VolumeIds=[twin])['Volumes'][0]['Size'] == 5)
check('what is not there', refused('InvalidVolume.NotFound', ec2.describe_volumes, VolumeIds=['vol-00000000']))
check('a zone that is not there', refused('InvalidZone.NotFound', ec2.create_volume, AvailabilityZone='there', Size=1))
check('more than there is', refused('InsufficientVolumeCapacity', ec2.create_volume, AvailabilityZone='here', Size=1000))
check('a dry run', refused('DryRunOperation', ec2.create_volume, AvailabilityZone='here', Size=1, DryRun=True))
ec2.delete_snapshot(SnapshotId=snapshot)
for one in (volume, copy, twin):
    ec2.delete_volume(VolumeId=one)
for one in (volume, copy, twin):  # each alone: the first that is not found ends the waiter
    wait('volume_deleted', VolumeIds=[one])
check('the volumes are gone', ec2.describe_volumes()['Volumes'] == [])
for _ in range(100):  # no waiter of EC2 awaits the end of a snapshot
    if ec2.describe_snapshots()['Snapshots'] == []:
        break
check('the snapshot is gone', ec2.describe_snapshots()['Snapshots'] == [])
