//! The objects of a cluster, from the words of a spec to the fields of Kubernetes.

mod frame;
mod moves;
mod objects;
mod pod;
mod refused;
