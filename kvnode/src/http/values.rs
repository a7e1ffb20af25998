//! Header values made without a detour: one small allocation each, as they stand in every answer.

use http::HeaderValue;

/// Digits of the largest `u64`.
const DIGITS_MAX: usize = 20;

/// A number in decimal.
#[must_use]
pub fn decimal(number: u64) -> HeaderValue {
    let mut buffer = [0; DIGITS_MAX];
    HeaderValue::from_bytes(digits(number, &mut buffer)).expect("digits are legal in headers")
}

/// The tag of a version: `"V"`.
#[must_use]
pub fn etag(version: u64) -> HeaderValue {
    let mut buffer = [0; DIGITS_MAX];
    let digits = digits(version, &mut buffer);
    let mut quoted = [b'"'; DIGITS_MAX + 2];
    quoted[1..=digits.len()].copy_from_slice(digits);
    HeaderValue::from_bytes(&quoted[..digits.len() + 2]).expect("a quoted number is legal")
}

fn digits(mut number: u64, buffer: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        buffer[start] = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
        if number == 0 {
            return &buffer[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_headers_as_everybody_writes_them() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            assert_eq!(decimal(number), number.to_string().as_str());
            assert_eq!(etag(number), format!("\"{number}\"").as_str());
        }
    }
}
