//! Whole-numbered shares of a total, in proportion to weights, under caps.
//!
//! Integers only: the same shares come out on every machine. Fractions are fixed-point numbers.

/// Fractional bits of a share. With 17 bits of copies and 32 bits of weight a product stays far
/// below 128 bits, and the error of a share far below one copy.
const FRACTION_BITS: u32 = 40;
const ONE: u128 = 1 << FRACTION_BITS;
/// A share this close below a whole number is that number: the rest is the error of the level.
const SNAP: u128 = ONE >> 16;

/// A non-negative fixed-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Share(u128);

impl Share {
    fn whole(self) -> usize {
        usize::try_from((self.0 + SNAP) >> FRACTION_BITS).expect("a share is at most the total")
    }

    /// What is left beyond the whole part; nothing for a share that was rounded up.
    fn fraction(self) -> u128 {
        self.0.saturating_sub((self.whole() as u128) << FRACTION_BITS)
    }
}

/// One who takes part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) weight: u32,
    /// Most that this one can take.
    pub(crate) cap: usize,
    /// What it has now. Decides who gets the units that rounding leaves over.
    pub(crate) held: usize,
}

/// The share of a claim when each unit of weight is worth `level`.
fn share_at(claim: &Claim, level: u128) -> u128 {
    ((claim.cap as u128) << FRACTION_BITS).min(u128::from(claim.weight) * level)
}

/// Divides `total` so that the shares per weight are as even as the caps allow (the level to which
/// water rises in vessels of these widths and heights), rounded to whole numbers that differ from
/// the exact share by less than one. Where the caps cannot hold `total`, all are filled.
pub(crate) fn divide(total: usize, claims: &[Claim]) -> Vec<usize> {
    let capacity: usize = claims.iter().map(|claim| claim.cap).sum();
    let total = total.min(capacity);
    let height = claims.iter().map(|claim| claim.cap).max().unwrap_or(0);
    let level =
        water_level(total, height, |level| claims.iter().map(|claim| share_at(claim, level)).sum());
    let shares: Vec<Share> = claims.iter().map(|claim| Share(share_at(claim, level))).collect();
    let caps: Vec<usize> = claims.iter().map(|claim| claim.cap).collect();
    let held: Vec<usize> = claims.iter().map(|claim| claim.held).collect();
    round(total, &shares, &caps, &held)
}

/// A group of claims that together take no less and no more than its bounds.
pub(super) struct Group {
    pub(super) claims: Vec<Claim>,
    pub(super) floor: usize,
    pub(super) cap: usize,
}

/// Divides `total` first among groups and then inside each, so that the shares per weight are as
/// even as the groups' bounds and the claims' caps allow. Answers claim by claim, group by group.
pub(super) fn divide_in_groups(total: usize, groups: &[Group]) -> Vec<Vec<usize>> {
    let group_share = |group: &Group, level: u128| {
        let sum: u128 = group.claims.iter().map(|claim| share_at(claim, level)).sum();
        sum.clamp((group.floor as u128) << FRACTION_BITS, (group.cap as u128) << FRACTION_BITS)
    };
    let height = groups.iter().map(|group| group.cap).max().unwrap_or(0);
    let level = water_level(total, height, |level| {
        groups.iter().map(|group| group_share(group, level)).sum()
    });
    let shares: Vec<Share> = groups.iter().map(|group| Share(group_share(group, level))).collect();
    let caps: Vec<usize> = groups.iter().map(|group| group.cap).collect();
    let held: Vec<usize> =
        groups.iter().map(|group| group.claims.iter().map(|claim| claim.held).sum()).collect();
    let totals = round(total, &shares, &caps, &held);
    groups.iter().zip(totals).map(|(group, total)| divide(total, &group.claims)).collect()
}

/// The highest level at which the filled amount does not exceed `total`.
fn water_level(total: usize, height: usize, filled: impl Fn(u128) -> u128) -> u128 {
    let total = (total as u128) << FRACTION_BITS;
    // The lightest weight is 1, so at this level every cap is reached.
    let (mut low, mut high) = (0, (height as u128) << FRACTION_BITS);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if filled(middle) <= total {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// Whole numbers with the given sum, each the share rounded down or up. Rounded up are first those
/// that would otherwise give something away, so that rounding alone moves nothing.
fn round(total: usize, shares: &[Share], caps: &[usize], held: &[usize]) -> Vec<usize> {
    let mut whole: Vec<usize> = shares.iter().map(|share| share.whole()).collect();
    let mut left = total.saturating_sub(whole.iter().sum());
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&i| {
        let fraction = shares[i].fraction();
        (fraction == 0, held[i] <= whole[i], std::cmp::Reverse(fraction), i)
    });
    for &i in &order {
        if left > 0 && whole[i] < caps[i] {
            whole[i] += 1;
            left -= 1;
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::{Claim, Group, divide, divide_in_groups};

    fn claims(weights: &[u32], cap: usize) -> Vec<Claim> {
        weights.iter().map(|&weight| Claim { weight, cap, held: 0 }).collect()
    }

    #[test]
    fn shares_follow_the_weights() {
        assert_eq!(divide(700, &claims(&[1, 2, 4], 1000)), [100, 200, 400]);
        assert_eq!(divide(4096, &claims(&[3, 3, 3, 3], 4096)), [1024; 4]);
        assert_eq!(divide(7, &claims(&[u32::MAX, u32::MAX, 1], 100)), [4, 3, 0]);
    }

    #[test]
    fn what_a_cap_cuts_off_goes_to_the_others_by_weight() {
        assert_eq!(divide(256, &claims(&[1, 1, 100], 128)), [64, 64, 128]);
        assert_eq!(divide(1000, &claims(&[1, 2], 100)), [100, 100]);
        assert_eq!(divide(0, &claims(&[1, 2], 100)), [0, 0]);
        assert!(divide(5, &[]).is_empty());
    }

    #[test]
    fn units_left_by_rounding_stay_where_they_are() {
        let held = [0, 34, 34, 33, 35];
        let claims: Vec<Claim> =
            held.iter().map(|&held| Claim { weight: 1, cap: 200, held }).collect();
        assert_eq!(divide(168, &claims), [33, 34, 34, 33, 34]);
    }

    #[test]
    fn a_group_at_its_bound_does_not_disturb_the_others() {
        let group = |weights: &[u32]| Group { claims: claims(weights, 100), floor: 0, cap: 100 };
        let shares = divide_in_groups(200, &[group(&[1; 8]), group(&[1]), group(&[1])]);
        assert_eq!(shares[0].iter().sum::<usize>(), 100, "eight nodes would like 160 of 200");
        assert_eq!([shares[1][0], shares[2][0]], [50, 50]);
    }
}
