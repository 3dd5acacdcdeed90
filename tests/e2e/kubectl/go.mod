// Only marks the module's root: builds choose go.1.31.mod or go.1.33.mod by -modfile.
module fairlead.dev/kubectl

go 1.23.0
