// SPDX-License-Identifier: Apache-2.0
// IP addresses and prefixes, for rules about who may connect.
#pragma once

#include <verbena/core/result.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// An IPv4 or IPv6 address. IPv4 is kept as IPv4-mapped IPv6 (RFC 4291 2.5.5.2), so a client that
/// reaches a dual-stack listener over IPv4 compares equal to itself.
class ip_address {
public:
    ip_address() = default;
    /// The address in network order; an IPv4 one in its mapped form.
    explicit ip_address(const std::array<std::uint8_t, 16>& bytes) noexcept : bytes_(bytes) {}

    /// "192.0.2.1", "2001:db8::1", "fe80::1%eth0" (the zone is dropped), "::ffff:192.0.2.1".
    static std::optional<ip_address> parse(std::string_view text) noexcept;

    /// Whether it is an IPv4 address, kept in mapped form.
    bool is_v4() const noexcept;
    /// 127.0.0.0/8 or ::1.
    bool is_loopback() const noexcept;
    /// 0.0.0.0 or ::, which a listener uses for every address of the host.
    bool is_unspecified() const noexcept;
    /// True unless the address is of a range that is not routed globally (RFC 6890 and its registry):
    /// private, shared, link-local, loopback, unique local, documentation, unspecified.
    bool is_global() const noexcept;
    const std::array<std::uint8_t, 16>& bytes() const noexcept { return bytes_; }
    /// As people write it (RFC 5952); an IPv4 address with dots.
    std::string text() const;
    friend bool operator==(const ip_address&, const ip_address&) = default;

private:
    std::array<std::uint8_t, 16> bytes_{};
};

/// An address prefix in CIDR form.
class ip_prefix {
public:
    /// "10.0.0.0/8", "2001:db8::/32", or an address alone. Bits behind the prefix must be zero.
    static result<ip_prefix> parse(std::string_view text);

    /// Whether the address lies in it.
    bool contains(const ip_address& address) const noexcept;
    /// True if any address in it is global.
    bool includes_global() const noexcept;
    /// Whether all of it are IPv4 addresses.
    bool is_v4() const noexcept { return base_.is_v4() && length_ >= 96; }
    /// Whether all of `other` lies in it.
    bool contains(const ip_prefix& other) const noexcept
    {
        return length_ <= other.length_ && contains(other.base_);
    }
    /// In CIDR form, as parse() takes it.
    std::string text() const;

private:
    ip_address base_;
    unsigned length_ = 128; // of 128 bits, for IPv4 too
};

/// The addresses of this host's interfaces. Not thread-safe.
class host_addresses {
public:
    /// An address that is not found makes the list be read again at most this often.
    static constexpr std::chrono::seconds min_refresh{60};

    /// Reads the list from the system.
    host_addresses();
    /// A fixed list, never read again.
    explicit host_addresses(std::vector<ip_address> fixed) : list_(std::move(fixed)), fixed_(true) {}

    /// True for loopback and for the host's own addresses.
    bool is_local(const ip_address& address);
    const std::vector<ip_address>& list() const noexcept { return list_; }

private:
    void refresh();
    bool listed(const ip_address& address) const noexcept;

    std::vector<ip_address> list_;
    std::chrono::steady_clock::time_point read_at_{};
    bool fixed_ = false;
};

} // namespace verbena

#pragma GCC visibility pop
