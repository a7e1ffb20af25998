//! Who takes part: the nodes, the cluster they found, and the keys in use.

use std::sync::Arc;

use bytes::Bytes;
use kvcore::ClusterId;
use kvcore::cluster::{ClusterState, Founding, Registration, found};
use placement::{
    NodeId, NodeName, PartitionBits, PartitionId, ReplicationFactor, TokenPolicy, Weight, Zone,
};

use super::weather::Setup;

/// A key that clients use.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its partition.
    pub partition: PartitionId,
}

/// Identity of a node; every wipe of its disk makes another one.
pub fn node_id(number: usize, wipes: u64) -> NodeId {
    NodeId::from_u128(1 + number as u128 + (u128::from(wipes) << 64))
}

/// What a node says of itself under an identity.
pub fn registration(number: usize, id: NodeId, setup: &Setup) -> Registration {
    let wipes = id.as_u128() >> 64;
    let name = if wipes == 0 { format!("n{number}") } else { format!("n{number}-{wipes}") };
    let zone = number % setup.zones;
    Registration {
        id,
        name: NodeName::parse(&name).expect("a legal name"),
        zone: Zone::parse(&format!("z{zone}")).expect("a legal zone"),
        weight: Weight::new(1).expect("a legal weight"),
        client_address: format!("n{number}:7400"),
        peer_address: format!("n{number}:7401"),
    }
}

/// The first state of a cluster of the founders.
pub fn found_cluster(setup: &Setup) -> Arc<ClusterState> {
    let founding = Founding {
        cluster: ClusterId(7),
        founders: (0..setup.founders)
            .map(|number| registration(number, node_id(number, 0), setup))
            .collect(),
        partition_bits: PartitionBits::new(setup.partition_bits).expect("few partitions"),
        replication_factor: ReplicationFactor::new(3).expect("three copies"),
        vnodes_per_node: 4,
        policy: TokenPolicy::Balanced,
        now_ms: 0,
    };
    Arc::new(found(&founding).expect("nodes with distinct names found a cluster"))
}

/// Keys for clients, wherever their hashes put them.
pub fn keys(count: usize, bits: u8) -> Vec<Key> {
    let bits = PartitionBits::new(bits).expect("few partitions");
    let key = |number: usize| {
        let bytes = Bytes::from(format!("key-{number}"));
        let partition = bits.partition_of(placement::key_hash(&bytes));
        Key { bytes, partition }
    };
    (0..count).map(key).collect()
}
