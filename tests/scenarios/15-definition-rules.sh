#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rules in CEL of a definition: the same objects are refused with the same words on both engines.
. "$(dirname "$0")/lib.sh"

clean_up() {
  local status=$?
  trap - EXIT
  k delete customresourcedefinition ships.sea.example.org --ignore-not-found --timeout=60s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

k apply -f "$top/tests/data/definition-rules.yaml" > /dev/null
k wait --for=condition=Established customresourcedefinition/ships.sea.example.org --timeout=30s > /dev/null
until_true 30 'ships are served' k get ships -A

ship() { echo "{apiVersion: sea.example.org/v1, kind: Ship, metadata: {name: $1, namespace: default}, spec: $2}"; }
# VERB SPEC WORDS [NAME]: refused with all of the words.
refused() {
  local out
  if out=$(ship "${4:-a}" "$2" | k "$1" -f - 2>&1); then fail "taken: $2"; fi
  [[ $out == *"$3"* ]] || fail "$2: wanted \"$3\", got: $out"
}
refused create '{crew: 1}' '<nil>: Invalid value: "object": not again' titanic
refused create '{crew: 0}' 'spec.crew: Invalid value: "integer": failed rule: self > 0'
refused create '{crew: 1, least: 3}' 'spec: Invalid value: "object": least is far too many'
refused create '{crew: 1, bad: 0}' 'spec: Invalid value: "object": division by zero evaluating rule: !has(self.bad) || 10 / self.bad > 1'
refused create '{ratio: 12}' 'spec.ratio: Invalid value: "number": failed rule: self / 2.0 < 5.0'
refused create "{at: '2019-01-01T00:00:00Z'}" "spec.at: Invalid value: \"string\": failed rule: self > timestamp('2020-01-01T00:00:00Z')"
refused create '{any: 1}' "spec.any: Invalid value: \"\": failed rule: type(self) == int ? self > 1 : self != 'x'"
refused create '{tags: {abcdefg: x}}' 'spec.tags.[a]: Invalid value: "object": long key'
refused create '{list: [b, a]}' 'spec.list: Duplicate value: "array"'
refused create '{least: 5}' 'spec: Invalid value: "object": no such key: crew evaluating rule: !has(self.least) || self.least <= self.crew'
refused create '{crew: 5000, ratio: 20}' 'spec.ratio: Invalid value: "number": failed rule: self / 2.0 < 5.0'
refused create '{flag: true}' '<nil>: Invalid value: "null": some validation rules were not checked because the object was invalid; correct the existing errors to complete validation'
ship a '{crew: 5, name: x, flag: f, decks: [{name: d, size: 5}, {name: e, size: 3}]}' | k create -f - > /dev/null
refused replace '{crew: 5, name: z, flag: f}' 'spec.name: Forbidden: name does not change'
refused replace '{crew: 5, name: x}' 'spec: Invalid value: "object": flag may not come or go'
refused replace '{crew: 5, name: x, flag: f, decks: [{name: e, size: 2}, {name: d, size: 5}]}' 'spec.decks[0].size: Invalid value: "integer": decks do not shrink'
ship a '{crew: 5, name: x, flag: f, decks: [{name: f, size: 1}, {name: d, size: 6}]}' | k replace -f - > /dev/null || fail 'a new deck may be small'
note 'rules of a definition hold, in the same words'
