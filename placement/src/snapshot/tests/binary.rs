//! In a binary serde format a snapshot is its canonical bytes. The format here keeps one byte
//! string and refuses everything else.

use serde::ser::Impossible;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de, forward_to_deserialize_any, ser,
};

use super::golden;
use crate::RingSnapshot;

type Error = de::value::Error;

struct OneByteString;

macro_rules! refuse {
    ($($method:ident($($kind:ty),*);)*) => {
        $(fn $method(self, $(_: $kind),*) -> Result<Vec<u8>, Error> {
            Err(ser::Error::custom(stringify!($method)))
        })*
    };
}

macro_rules! refuse_compound {
    ($($method:ident($($kind:ty),*) -> $compound:ident;)*) => {
        $(fn $method(self, $(_: $kind),*) -> Result<Self::$compound, Error> {
            Err(ser::Error::custom(stringify!($method)))
        })*
    };
}

impl Serializer for OneByteString {
    type Ok = Vec<u8>;
    type Error = Error;
    type SerializeSeq = Impossible<Vec<u8>, Error>;
    type SerializeTuple = Impossible<Vec<u8>, Error>;
    type SerializeTupleStruct = Impossible<Vec<u8>, Error>;
    type SerializeTupleVariant = Impossible<Vec<u8>, Error>;
    type SerializeMap = Impossible<Vec<u8>, Error>;
    type SerializeStruct = Impossible<Vec<u8>, Error>;
    type SerializeStructVariant = Impossible<Vec<u8>, Error>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(bytes.to_vec())
    }

    refuse! {
        serialize_bool(bool); serialize_char(char); serialize_str(&str);
        serialize_i8(i8); serialize_i16(i16); serialize_i32(i32); serialize_i64(i64);
        serialize_u8(u8); serialize_u16(u16); serialize_u32(u32); serialize_u64(u64);
        serialize_f32(f32); serialize_f64(f64);
        serialize_none(); serialize_unit(); serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    refuse_compound! {
        serialize_seq(Option<usize>) -> SerializeSeq;
        serialize_tuple(usize) -> SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_map(Option<usize>) -> SerializeMap;
        serialize_struct(&'static str, usize) -> SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Vec<u8>, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Vec<u8>, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<Vec<u8>, Error> {
        value.serialize(self)
    }
}

struct FromBytes(Vec<u8>);

impl<'de> Deserializer<'de> for FromBytes {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[test]
fn binary_formats_carry_the_canonical_bytes_and_verify_them() {
    let [snapshot, _] = golden();
    let bytes = snapshot.serialize(OneByteString).unwrap();
    assert_eq!(bytes, snapshot.canonical_bytes());
    assert_eq!(RingSnapshot::deserialize(FromBytes(bytes.clone())), Ok(snapshot));
    let mut damaged = bytes;
    damaged[20] ^= 1;
    let error = RingSnapshot::deserialize(FromBytes(damaged)).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}
