# SPDX-License-Identifier: Apache-2.0
"""CloudWatch Logs, SNS and managed policies by boto3, with the credentials of the environment.

  services.py ACCOUNT
"""
import http.server
import json
import queue
import sys
import threading
import time

import boto3
import botocore.exceptions

account = sys.argv[1]


def ok(what, good, *values):
    if not good:
        raise SystemExit(f"FAIL {what}: {values}")
    print(f"ok {what}")


def refused(code, call, **given):
    try:
        call(**given)
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"] == code or print(error)
    return False


def until(call, seconds=10):
    end = time.monotonic() + seconds
    while not (found := call()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


logs = boto3.client("logs")
groups = [one for page in logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix="/aws/sagemaker/Clusters/demo/") for one in page["logGroups"]]
ok("log groups", len(groups) == 1 and groups[0]["arn"] == f"arn:aws:logs:fairlead-1:{account}:log-group:{groups[0]['logGroupName']}:*", groups)
group = groups[0]["logGroupName"]
streams = [one["logStreamName"] for page in logs.get_paginator("describe_log_streams").paginate(logGroupName=group, PaginationConfig={"PageSize": 1}) for one in page["logStreams"]]
ok("log streams", "Slurm/talker/main" in streams, streams)
ok("events of nobody", [one for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group, interleaved=True, startTime=0) for one in page["events"]] == [])
page = logs.get_log_events(logGroupName=group, logStreamName="Slurm/talker/main", startFromHead=True)
ok("the same token at the end", page["events"] == [] and logs.get_log_events(logGroupName=group, logStreamName="Slurm/talker/main", nextToken=page["nextForwardToken"])["nextForwardToken"] == page["nextForwardToken"], page)
ok("patterns of JSON are refused", refused("InvalidParameterException", logs.filter_log_events, logGroupName=group, filterPattern='{ $.level = "x" }'))
ok("a group that is not there", refused("ResourceNotFoundException", logs.describe_log_streams, logGroupName="/aws/sagemaker/Clusters/none/0123456789ab"))
ok("what is not served", refused("UnknownOperationException", logs.create_log_group, logGroupName="/a"))

posts = queue.Queue()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        posts.put((dict(self.headers), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


receiver = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
sns = boto3.client("sns")
arn = sns.create_topic(Name="Head_Alarms")["TopicArn"]
ok("a topic", arn == f"arn:aws:sns:fairlead-1:{account}:Head_Alarms" and sns.create_topic(Name="Head_Alarms")["TopicArn"] == arn, arn)
endpoint = f"http://127.0.0.1:{receiver.server_port}/hook"
subscription = sns.subscribe(TopicArn=arn, Protocol="http", Endpoint=endpoint, ReturnSubscriptionArn=True)["SubscriptionArn"]
told = [one for page in sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=arn) for one in page["Subscriptions"]]
ok("a subscription", told == [{"SubscriptionArn": subscription, "Owner": account, "Protocol": "http", "Endpoint": endpoint, "TopicArn": arn}], told)
message = sns.publish(TopicArn=arn, Subject="Head changed", Message="controller-1 serves\n<&> \u00e4", MessageAttributes={"level": {"DataType": "String", "StringValue": "high"}})["MessageId"]
headers, body = posts.get(timeout=20)
ok("a message is delivered", (body["MessageId"], body["Subject"], body["Message"], body["TopicArn"], body["MessageAttributes"]) == (message, "Head changed", "controller-1 serves\n<&> \u00e4", arn, {"level": {"Type": "String", "Value": "high"}}), body)
batch = sns.publish_batch(TopicArn=arn, PublishBatchRequestEntries=[{"Id": "a", "Message": "one"}, {"Id": "b", "Message": json.dumps({"default": "x", "http": "two"}), "MessageStructure": "json"}])
ok("a batch", sorted(posts.get(timeout=20)[1]["Message"] for _ in "ab") == ["one", "two"] and not batch.get("Failed"), batch)
ok("no filter is passed over", refused("InvalidParameter", sns.subscribe, TopicArn=arn, Protocol="http", Endpoint=endpoint + "2", Attributes={"FilterPolicy": "{}"}))
ok("mail without a server", refused("InvalidParameter", sns.subscribe, TopicArn=arn, Protocol="email", Endpoint="ops@example.com"))
sns.unsubscribe(SubscriptionArn=subscription)
attributes = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
ok("unsubscribed", attributes["SubscriptionsConfirmed"] == "0" and attributes["Owner"] == account, attributes)
sns.delete_topic(TopicArn=arn)
ok("no topic any more", refused("NotFound", sns.publish, TopicArn=arn, Message="x") and arn not in [one["TopicArn"] for one in sns.list_topics()["Topics"]])

iam = boto3.client("iam")


def statement(effect):
    return json.dumps({"Version": "2012-10-17", "Statement": {"Effect": effect, "Action": "sagemaker:ListClusters", "Resource": "*"}})


iam.create_user(UserName="carl")
key = iam.create_access_key(UserName="carl")["AccessKey"]
carl = boto3.client("sagemaker", aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])


def may():
    try:
        return bool(carl.list_clusters())
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"] != "AccessDeniedException" and None


policy = iam.create_policy(PolicyName="Listers", PolicyDocument=statement("Allow"))["Policy"]["Arn"]
ok("a policy", policy == f"arn:aws:iam::{account}:policy/Listers" and until(lambda: may() is False), policy)
iam.attach_user_policy(UserName="carl", PolicyArn=policy)
iam.attach_user_policy(UserName="carl", PolicyArn="arn:aws:iam::aws:policy/AmazonSageMakerClusterInstanceRolePolicy")
ok("attached", until(may) and len(iam.list_attached_user_policies(UserName="carl")["AttachedPolicies"]) == 2)
iam.create_policy_version(PolicyArn=policy, PolicyDocument=statement("Deny"), SetAsDefault=True)
ok("its new version denies", until(lambda: may() is False) and iam.get_policy_version(PolicyArn=policy, VersionId="v2")["PolicyVersion"]["Document"]["Statement"]["Effect"] == "Deny")
ok("it is in use", refused("DeleteConflict", iam.delete_policy, PolicyArn=policy) and [one["UserName"] for one in iam.list_entities_for_policy(PolicyArn=policy)["PolicyUsers"]] == ["carl"])
for one in iam.list_attached_user_policies(UserName="carl")["AttachedPolicies"]:
    iam.detach_user_policy(UserName="carl", PolicyArn=one["PolicyArn"])
iam.delete_policy_version(PolicyArn=policy, VersionId="v1")
iam.delete_policy(PolicyArn=policy)
iam.delete_access_key(UserName="carl", AccessKeyId=key["AccessKeyId"])
iam.delete_user(UserName="carl")
ok("all is gone", refused("NoSuchEntity", iam.get_policy, PolicyArn=policy))
