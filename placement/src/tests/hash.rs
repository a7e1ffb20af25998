//! The hash against upstream's vectors, and the arithmetic of partitions at its edges.

use crate::{HashSpec, PartitionBits, PartitionId, key_hash};

/// The buffer of XXH3's own sanity test.
fn sanity_buffer(length: usize) -> Vec<u8> {
    let mut generator = 2_654_435_761_u64;
    let mut next = || {
        let byte = (generator >> 56) as u8;
        generator = generator.wrapping_mul(11_400_714_785_074_694_797);
        byte
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn the_key_hash_is_xxh3_64_of_the_raw_bytes() {
    let vectors = [
        (0, 0x2D06_8005_38D3_94C2),
        (1, 0xC44B_DFF4_074E_ECDB),
        (6, 0x27B5_6A84_CD2D_7325),
        (12, 0xA713_DAF0_DFBB_77E7),
        (24, 0xA3FE_70BF_9D35_10EB),
        (48, 0x397D_A259_ECBA_1F11),
        (195, 0xCD94_217E_E362_EC3A),
        (512, 0x617E_4959_9013_CB6B),
        (2048, 0xDD59_E2C3_A5F0_38E0),
    ];
    for (length, expected) in vectors {
        assert_eq!(key_hash(&sanity_buffer(length)), expected, "length {length}");
    }
}

#[test]
fn the_checksum_is_xxh3_128() {
    let of_nothing = crate::Checksum::of(b"");
    assert_eq!(of_nothing.to_string(), "99aa06d3014798d86001c324468d497f");
}

#[test]
fn one_partition_holds_every_hash() {
    let bits = PartitionBits::new(0).unwrap();
    assert_eq!(bits.count(), 1);
    for hash in [0, 1, u64::MAX] {
        assert_eq!(bits.partition_of(hash), PartitionId::new(0));
    }
    assert_eq!(bits.last_hash(PartitionId::new(0)), u64::MAX);
}

#[test]
fn partitions_cut_the_hash_space_without_gap_or_overlap() {
    for bits in 0..=PartitionBits::MAX {
        let bits = PartitionBits::new(bits).unwrap();
        let mut first = 0_u64;
        for partition in bits.partitions() {
            let last = bits.last_hash(partition);
            assert_eq!(bits.partition_of(first), partition);
            assert_eq!(bits.partition_of(last), partition);
            first = last.wrapping_add(1);
        }
        assert_eq!(first, 0, "the last partition ends with the hash space");
        assert_eq!(bits.partition(bits.count()), None);
        assert_eq!(PartitionBits::from_count(bits.count()), Ok(bits));
    }
    assert!(PartitionBits::new(17).is_err());
    assert!(PartitionBits::from_count(0).is_err());
    assert!(PartitionBits::from_count(1000).is_err());
    assert!(PartitionBits::from_count(1 << 17).is_err());
}

#[test]
fn another_hash_is_refused_by_name() {
    let other = HashSpec { algorithm: "murmur3".into(), ..HashSpec::CURRENT };
    let error = other.ensure_supported().unwrap_err().to_string();
    assert!(error.contains("murmur3") && error.contains("xxh3-64"), "{error}");
    assert_eq!(HashSpec::CURRENT.ensure_supported(), Ok(()));
}
