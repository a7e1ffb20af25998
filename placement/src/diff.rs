//! What changes between two rings, partition by partition.
