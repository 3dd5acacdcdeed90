// SPDX-License-Identifier: Apache-2.0

// Writes src/kube/type_table_data.inc: names, numbers, list kinds and merge keys of Kubernetes' built-in types, by reflection over the struct tags of the
// pinned k8s.io modules and from the `+listType`, `+listMapKey`, `+mapType` and `+structType` markers of their sources. No Kubernetes texts are copied.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type kind struct {
	apiVersion string
	sample     any
}

// Every kind of the table. Adding one is adding a line here.
var kinds = []kind{
	{"v1", corev1.Namespace{}}, {"v1", corev1.Node{}}, {"v1", corev1.Pod{}}, {"v1", corev1.PodTemplate{}}, {"v1", corev1.Service{}}, {"v1", corev1.ConfigMap{}},
	{"v1", corev1.Secret{}}, {"v1", corev1.ServiceAccount{}}, {"v1", corev1.Event{}}, {"v1", corev1.Binding{}}, {"v1", corev1.PersistentVolumeClaim{}},
	{"v1", corev1.PersistentVolume{}}, {"v1", corev1.ResourceQuota{}}, {"v1", corev1.Endpoints{}}, {"v1", metav1.Status{}}, {"v1", metav1.DeleteOptions{}},
	{"apps/v1", appsv1.Deployment{}}, {"apps/v1", appsv1.StatefulSet{}}, {"apps/v1", appsv1.DaemonSet{}}, {"apps/v1", appsv1.ReplicaSet{}},
	{"batch/v1", batchv1.Job{}}, {"batch/v1", batchv1.CronJob{}},
	{"coordination.k8s.io/v1", coordinationv1.Lease{}},
	{"apiextensions.k8s.io/v1", apiextensionsv1.CustomResourceDefinition{}},
	{"policy/v1", policyv1.Eviction{}}, {"policy/v1", policyv1.PodDisruptionBudget{}},
	{"authentication.k8s.io/v1", authenticationv1.TokenReview{}}, {"authentication.k8s.io/v1", authenticationv1.SelfSubjectReview{}},
	{"authentication.k8s.io/v1", authenticationv1.TokenRequest{}},
	{"authorization.k8s.io/v1", authorizationv1.SubjectAccessReview{}}, {"authorization.k8s.io/v1", authorizationv1.LocalSubjectAccessReview{}},
	{"authorization.k8s.io/v1", authorizationv1.SelfSubjectAccessReview{}}, {"authorization.k8s.io/v1", authorizationv1.SelfSubjectRulesReview{}},
	{"rbac.authorization.k8s.io/v1", rbacv1.Role{}}, {"rbac.authorization.k8s.io/v1", rbacv1.ClusterRole{}},
	{"rbac.authorization.k8s.io/v1", rbacv1.RoleBinding{}}, {"rbac.authorization.k8s.io/v1", rbacv1.ClusterRoleBinding{}},
	{"storage.k8s.io/v1", storagev1.StorageClass{}},
	// The same in v1 since Kubernetes 1.34, of whose modules these are not yet.
	{"storage.k8s.io/v1", storagev1beta1.VolumeAttributesClass{}}, {"storage.k8s.io/v1beta1", storagev1beta1.VolumeAttributesClass{}},
	{"discovery.k8s.io/v1", discoveryv1.EndpointSlice{}},
	{"events.k8s.io/v1", eventsv1.Event{}},
	{"autoscaling/v1", autoscalingv1.Scale{}},
	{"networking.k8s.io/v1", networkingv1.NetworkPolicy{}},
	{"scheduling.k8s.io/v1", schedulingv1.PriorityClass{}},
	{"admissionregistration.k8s.io/v1", admissionv1.ValidatingAdmissionPolicy{}}, {"admissionregistration.k8s.io/v1", admissionv1.ValidatingAdmissionPolicyBinding{}},
}

var modules = []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver"}

// Types whose JSON is not that of a struct.
var special = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):                                  "Time",
	reflect.TypeOf(metav1.MicroTime{}):                             "MicroTime",
	reflect.TypeOf(resource.Quantity{}):                            "Quantity",
	reflect.TypeOf(intstr.IntOrString{}):                           "IntOrString",
	reflect.TypeOf(runtime.RawExtension{}):                         "Any",
	reflect.TypeOf(metav1.FieldsV1{}):                              "Any",
	reflect.TypeOf(apiextensionsv1.JSON{}):                         "Any",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrBool{}):        "SchemaOr",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrArray{}):       "SchemaOr",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrStringArray{}): "SchemaOr",
}

type markers struct {
	listType, mapType string
	listKeys          []string
}

type table struct {
	index   map[reflect.Type]int
	types   []reflect.Type
	bodies  []string
	markers map[string]markers // "k8s.io/api/core/v1.PodSpec.containers" by Go field name; "k8s.io/api/core/v1.PodSpec" for the type
}

func main() {
	out := flag.String("out", "", "file to write")
	flag.Parse()
	t := table{index: map[reflect.Type]int{}, markers: map[string]markers{}}
	for _, module := range modules {
		t.readMarkers(module)
	}
	for _, k := range kinds {
		t.add(reflect.TypeOf(k.sample))
	}
	if err := os.WriteFile(*out, []byte(t.print()), 0o644); err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "typetable: "+format+"\n", args...)
	os.Exit(1)
}

// readMarkers collects the `+name=value` comment lines of every struct field and type in a module.
func (t *table) readMarkers(module string) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		fail("go list %s: %v", module, err)
	}
	root := strings.TrimSpace(string(out))
	err = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(filepath.Base(path), "generated") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg := module + strings.TrimPrefix(filepath.Dir(path), root)
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				typeSpec, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				name := pkg + "." + typeSpec.Name.Name
				t.markers[name] = readComments(general.Doc, typeSpec.Doc)
				if structure, ok := typeSpec.Type.(*ast.StructType); ok {
					for _, field := range structure.Fields.List {
						for _, fieldName := range field.Names {
							t.markers[name+"."+fieldName.Name] = readComments(field.Doc)
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		fail("read %s: %v", module, err)
	}
}

func readComments(groups ...*ast.CommentGroup) markers {
	var m markers
	for _, group := range groups {
		if group == nil {
			continue
		}
		for _, comment := range group.List {
			line := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
			name, value, _ := strings.Cut(line, "=")
			switch name {
			case "+listType":
				m.listType = value
			case "+listMapKey":
				m.listKeys = append(m.listKeys, strings.Trim(value, `"`))
			case "+mapType", "+structType":
				m.mapType = value
			}
		}
	}
	return m
}

// openAPIName turns k8s.io/api/core/v1.Pod into io.k8s.api.core.v1.Pod.
func openAPIName(typ reflect.Type) string {
	host, rest, _ := strings.Cut(typ.PkgPath(), "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + typ.Name()
}

func (t *table) add(typ reflect.Type) int {
	if at, ok := t.index[typ]; ok {
		return at
	}
	at := len(t.types)
	t.index[typ] = at
	t.types = append(t.types, typ)
	t.bodies = append(t.bodies, "")
	var body strings.Builder
	if typ.Kind() == reflect.Slice { // a named list is a message with `items` on the wire and the bare list in JSON
		fmt.Fprintf(&body, "    {.number = 1, .type = %s, .repeated = true, .inlined = true},\n", t.fieldType(typ.Elem()))
	} else {
		for i := 0; i < typ.NumField(); i++ {
			t.field(&body, typ, typ.Field(i))
		}
	}
	t.bodies[at] = body.String()
	return at
}

// fieldType names the FieldType of a Go type that is not a list or map, with its message where it has one.
func (t *table) fieldType(typ reflect.Type) string {
	if name, ok := special[typ]; ok {
		if name == "SchemaOr" {
			return fmt.Sprintf("SchemaOr, .message = &types[%d]", t.add(typ))
		}
		return name
	}
	switch typ.Kind() {
	case reflect.String:
		return "String"
	case reflect.Bool:
		return "Bool"
	case reflect.Int32:
		return "Int32"
	case reflect.Int64:
		return "Int64"
	case reflect.Float64:
		return "Double"
	case reflect.Struct:
		return fmt.Sprintf("Message, .message = &types[%d]", t.add(typ))
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "Bytes"
		}
		if typ.Name() != "" && typ.Elem().Kind() == reflect.String {
			return fmt.Sprintf("Message, .message = &types[%d]", t.add(typ))
		}
	}
	fail("no FieldType for %v", typ)
	return ""
}

func (t *table) field(out *strings.Builder, owner reflect.Type, field reflect.StructField) {
	if field.Type == reflect.TypeOf(metav1.TypeMeta{}) {
		out.WriteString("    {.json = \"apiVersion\", .type = String, .omit_empty = true},\n    {.json = \"kind\", .type = String, .omit_empty = true},\n")
		return
	}
	jsonName, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	if jsonName == "-" {
		return
	}
	wire := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(wire) < 2 {
		if field.Tag.Get("json") == "" && owner == reflect.TypeOf(metav1.FieldsV1{}) {
			return
		}
		fail("%v.%s has no protobuf number", owner, field.Name)
	}
	number, err := strconv.Atoi(wire[1])
	if err != nil {
		fail("%v.%s: %v", owner, field.Name, err)
	}
	inlined := strings.Contains(options, "inline")
	if jsonName == "" && !inlined { // the alternatives of SchemaOr have wire names alone
		for _, part := range wire {
			if strings.HasPrefix(part, "name=") {
				jsonName = strings.TrimPrefix(part, "name=")
			}
		}
	}
	omitEmpty := strings.Contains(options, "omitempty")
	typ := field.Type
	pointer := typ.Kind() == reflect.Pointer
	if pointer {
		typ = typ.Elem()
	}
	marks := t.markers[owner.PkgPath()+"."+owner.Name()+"."+field.Name]
	if marks.mapType == "" && typ.Kind() == reflect.Struct {
		marks.mapType = t.markers[typ.PkgPath()+"."+typ.Name()].mapType
	}
	repeated, isMap := false, false
	_, isSpecial := special[typ]
	if typ.Kind() == reflect.Map {
		isMap = true
		if typ.Key().Kind() != reflect.String {
			fail("%v.%s: map key %v", owner, field.Name, typ.Key())
		}
		typ = typ.Elem()
	} else if typ.Kind() == reflect.Slice && typ.Elem().Kind() != reflect.Uint8 && !isSpecial {
		repeated = true
		typ = typ.Elem()
	}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}

	fmt.Fprintf(out, "    {")
	if jsonName != "" && !inlined {
		fmt.Fprintf(out, ".json = %q, ", jsonName)
	}
	fmt.Fprintf(out, ".number = %d, .type = %s", number, t.fieldType(typ))
	flag := func(name string, value bool) {
		if value {
			fmt.Fprintf(out, ", .%s = true", name)
		}
	}
	flag("repeated", repeated)
	flag("map", isMap)
	flag("inlined", inlined)
	flag("required", !omitEmpty && !pointer && !inlined)
	flag("omit_empty", omitEmpty && !pointer)
	strategy := "," + field.Tag.Get("patchStrategy") + ","
	if repeated {
		mergeKey := field.Tag.Get("patchMergeKey")
		list := "Atomic"
		if strings.Contains(strategy, ",merge,") {
			list = "Set"
			if mergeKey != "" {
				list = "Map"
			}
		}
		fmt.Fprintf(out, ", .list = ListKind::%s", list)
		if list == "Map" {
			fmt.Fprintf(out, ", .merge_key = %q", mergeKey)
		}
		if marks.listType != "" {
			fmt.Fprintf(out, ", .list_type = ListKind::%s", strings.ToUpper(marks.listType[:1])+marks.listType[1:])
		}
		if len(marks.listKeys) > 0 {
			fmt.Fprintf(out, ", .list_keys = %q", strings.Join(marks.listKeys, ","))
		}
	}
	flag("retain_keys", strings.Contains(strategy, ",retainKeys,"))
	flag("atomic", !repeated && marks.mapType == "atomic")
	out.WriteString("},\n")
}

func (t *table) print() string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			versions[dependency.Path] = dependency.Version
		}
	}
	var out strings.Builder
	out.WriteString("// SPDX-License-Identifier: Apache-2.0\n// Written by tools/typetable/run.sh; do not edit. Names and numbers from ")
	for i, module := range modules {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(module + " " + versions[module])
	}
	out.WriteString(".\n// clang-format off\n")
	fmt.Fprintf(&out, "constexpr std::string_view source_version = %q;\n", versions["k8s.io/api"])
	fmt.Fprintf(&out, "constexpr std::size_t type_count = %d;\nextern const Type types[type_count];\n", len(t.types))
	for i, body := range t.bodies {
		if body != "" {
			fmt.Fprintf(&out, "constexpr Field fields_%d[] = {  // %s\n%s};\n", i, openAPIName(t.types[i]), body)
		}
	}
	out.WriteString("const Type types[type_count] = {\n")
	for i, typ := range t.types {
		if t.bodies[i] == "" {
			fmt.Fprintf(&out, "    {%q, {}},\n", openAPIName(typ))
		} else {
			fmt.Fprintf(&out, "    {%q, fields_%d},\n", openAPIName(typ), i)
		}
	}
	out.WriteString("};\nconstexpr Kind kinds[] = {\n")
	var lines []string
	for _, k := range kinds {
		typ := reflect.TypeOf(k.sample)
		lines = append(lines, fmt.Sprintf("    {%q, %q, &types[%d]},\n", k.apiVersion, typ.Name(), t.index[typ]))
	}
	sort.Strings(lines)
	out.WriteString(strings.Join(lines, "") + "};\n// clang-format on\n")
	return out.String()
}
