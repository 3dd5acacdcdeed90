// SPDX-License-Identifier: Apache-2.0

// Writes strategic merge patches with what apimachinery makes of them, for the tests of src/kube/patch_strategic.cpp: random objects (fixed seed), the
// two- and three-way patches that kubectl would send for a change between them, applied to a third version of the object as the server holds it.
// One case per line: {"type", "target", "patch", "result" or "error"}.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

type object = map[string]any

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "patches:", err)
		os.Exit(1)
	}
}

func maybe(random *rand.Rand, into object, key string, value func() any) {
	if random.Intn(2) == 0 {
		into[key] = value()
	}
}

func list(random *rand.Rand, names []string, item func(name string) any) any {
	out := []any{}
	for _, at := range random.Perm(len(names))[:random.Intn(len(names)+1)] {
		out = append(out, item(names[at]))
	}
	return out
}

func container(random *rand.Rand, name string) any {
	c := object{"name": name, "image": fmt.Sprintf("image:%d", random.Intn(3))}
	maybe(random, c, "args", func() any { return list(random, []string{"-a", "-b", "-c"}, func(n string) any { return n }) })
	maybe(random, c, "env", func() any {
		return list(random, []string{"A", "B", "C", "D"}, func(n string) any { return object{"name": n, "value": fmt.Sprint(random.Intn(3))} })
	})
	maybe(random, c, "ports", func() any {
		return list(random, []string{"80", "81", "82"}, func(n string) any {
			return object{"containerPort": json.Number(n), "name": fmt.Sprintf("p%d", random.Intn(2))}
		})
	})
	maybe(random, c, "volumeMounts", func() any {
		return list(random, []string{"/a", "/b"}, func(n string) any { return object{"mountPath": n, "name": "v"} })
	})
	maybe(random, c, "resources", func() any { return object{"limits": object{"cpu": fmt.Sprint(random.Intn(3))}} })
	return c
}

func podSpec(random *rand.Rand) object {
	spec := object{"containers": list(random, []string{"a", "b", "c", "d"}, func(n string) any { return container(random, n) })}
	maybe(random, spec, "volumes", func() any {
		return list(random, []string{"v", "w", "x"}, func(n string) any {
			v := object{"name": n}
			switch random.Intn(3) {
			case 0:
				v["emptyDir"] = object{}
			case 1:
				v["hostPath"] = object{"path": "/p"}
			default:
				v["configMap"] = object{"name": "c", "items": []any{object{"key": "k", "path": fmt.Sprint(random.Intn(2))}}}
			}
			return v
		})
	})
	maybe(random, spec, "nodeSelector", func() any { return object{"zone": fmt.Sprint(random.Intn(3))} })
	maybe(random, spec, "tolerations", func() any {
		return list(random, []string{"t1", "t2"}, func(n string) any { return object{"key": n} })
	})
	maybe(random, spec, "imagePullSecrets", func() any {
		return list(random, []string{"s1", "s2", "s3"}, func(n string) any { return object{"name": n} })
	})
	maybe(random, spec, "hostNetwork", func() any { return random.Intn(2) == 0 })
	maybe(random, spec, "securityContext", func() any {
		return object{"runAsUser": random.Intn(3), "supplementalGroups": []any{1, random.Intn(3)}}
	})
	return spec
}

func meta(random *rand.Rand) object {
	m := object{"name": "x"}
	maybe(random, m, "labels", func() any {
		l := object{}
		for _, k := range []string{"a", "b", "c"} {
			maybe(random, l, k, func() any { return fmt.Sprint(random.Intn(2)) })
		}
		return l
	})
	maybe(random, m, "finalizers", func() any {
		return list(random, []string{"f/1", "f/2", "f/3", "f/4"}, func(n string) any { return n })
	})
	maybe(random, m, "ownerReferences", func() any {
		return list(random, []string{"u1", "u2"}, func(n string) any { return object{"uid": n, "name": fmt.Sprint(random.Intn(2))} })
	})
	return m
}

func pod(random *rand.Rand) object { return object{"metadata": meta(random), "spec": podSpec(random)} }

func deployment(random *rand.Rand) object {
	d := object{"metadata": meta(random), "spec": object{"template": object{"metadata": meta(random), "spec": podSpec(random)}}}
	spec := d["spec"].(object)
	maybe(random, spec, "replicas", func() any { return random.Intn(3) })
	maybe(random, spec, "strategy", func() any {
		if random.Intn(2) == 0 {
			return object{"type": "Recreate"}
		}
		return object{"type": "RollingUpdate", "rollingUpdate": object{"maxSurge": random.Intn(3)}}
	})
	return d
}

func service(random *rand.Rand) object {
	spec := object{}
	maybe(random, spec, "ports", func() any {
		return list(random, []string{"80", "81", "82"}, func(n string) any { return object{"port": json.Number(n), "targetPort": random.Intn(3)} })
	})
	maybe(random, spec, "selector", func() any { return object{"a": fmt.Sprint(random.Intn(2))} })
	return object{"metadata": meta(random), "spec": spec}
}

func text(value any) []byte {
	out, err := json.Marshal(value)
	must(err)
	return out
}

// What merging needs: left alone by addDirectives.
var isKey = map[string]bool{"name": true, "uid": true, "mountPath": true, "containerPort": true, "port": true, "$patch": true}

// addDirectives puts directives by hand here and there, as users write them.
func addDirectives(random *rand.Rand, value any) {
	switch typed := value.(type) {
	case object:
		if random.Intn(12) == 0 {
			typed["$patch"] = []string{"replace", "delete"}[random.Intn(2)]
		}
		if finalizers, ok := typed["finalizers"]; ok && random.Intn(2) == 0 {
			typed["$deleteFromPrimitiveList/finalizers"] = finalizers
			delete(typed, "finalizers")
		}
		for key, member := range typed {
			if random.Intn(15) == 0 && !isKey[key] {
				typed[key] = nil
				continue
			}
			addDirectives(random, member)
		}
	case []any:
		for i := range typed {
			addDirectives(random, typed[i])
		}
	}
}

// asDecoded drops what the server's typed decoder drops: nulls and leftover directives.
func asDecoded(value any) any {
	switch typed := value.(type) {
	case object:
		for key, member := range typed {
			if member == nil || strings.HasPrefix(key, "$") {
				delete(typed, key)
			} else {
				typed[key] = asDecoded(member)
			}
		}
	case []any:
		for i := range typed {
			typed[i] = asDecoded(typed[i])
		}
	}
	return value
}

func main() {
	file := flag.String("out", "", "file to write")
	count := flag.Int("count", 480, "how many cases")
	seed := flag.Int64("seed", 11, "seed")
	flag.Parse()
	random := rand.New(rand.NewSource(*seed))
	var out bytes.Buffer
	kinds := []struct {
		name   string
		make   func(*rand.Rand) object
		schema any
	}{{"io.k8s.api.core.v1.Pod", pod, corev1.Pod{}}, {"io.k8s.api.apps.v1.Deployment", deployment, appsv1.Deployment{}}, {"io.k8s.api.core.v1.Service", service, corev1.Service{}}}
	for i := 0; i < *count; i++ {
		kind := kinds[i%len(kinds)]
		original, modified, current := text(kind.make(random)), text(kind.make(random)), text(kind.make(random))
		meta, err := strategicpatch.NewPatchMetaFromStruct(kind.schema)
		must(err)
		var patch []byte
		switch i / len(kinds) % 3 {
		case 0:
			patch, err = strategicpatch.CreateTwoWayMergePatch(original, modified, kind.schema)
			must(err)
		case 1:
			patch, err = strategicpatch.CreateThreeWayMergePatch(original, modified, current, meta, true)
			must(err)
		default:
			byHand := kind.make(random)
			addDirectives(random, byHand["metadata"])
			addDirectives(random, byHand["spec"])
			patch = text(byHand)
		}
		row := object{"type": kind.name, "target": json.RawMessage(current), "patch": json.RawMessage(patch)}
		result, err := strategicpatch.StrategicMergePatch(current, patch, kind.schema)
		if err != nil {
			row["error"] = err.Error()
		} else {
			if bytes.Contains(result, []byte(`"$patch"`)) {
				continue // nested directives of a replaced map stay in the text; the typed decoder of the real server drops them
			}
			var generic any
			must(json.Unmarshal(result, &generic))
			row["result"] = asDecoded(generic)
		}
		out.Write(text(row))
		out.WriteByte('\n')
	}
	must(os.WriteFile(*file, out.Bytes(), 0o644))
}
