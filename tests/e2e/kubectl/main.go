// SPDX-License-Identifier: Apache-2.0

// kubectl, built from its own module for machines that have fewer than two versions of it. For tests only; the linker sets the version.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
