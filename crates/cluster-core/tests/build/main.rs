//! The objects of a cluster, from the words of a spec to the fields of Kubernetes.

mod canonical;
mod fetch;
mod fields;
mod fixtures;
mod moves;
mod objects;
mod patch;
mod pod;
mod refused;
