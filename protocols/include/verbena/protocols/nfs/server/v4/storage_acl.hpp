// SPDX-License-Identifier: Apache-2.0
// ACLs between version 4's wire and back ends: an entry's `who` is a text there and a number here.
#pragma once

#include <verbena/protocols/nfs/wire/v4/attributes.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The uid, or the gid of a `group`, that a `who` stands for which is none of OWNER@, GROUP@ and EVERYONE@; nothing if nobody has it. Numbers alone, as parse_owner().
std::optional<std::uint32_t> parse_who(std::string_view who, bool group) noexcept;
/// The other way; room for what it writes is the caller's.
std::string_view write_who(std::array<char, 10>& to, std::uint32_t id, bool group) noexcept;

/// One entry as a back end has it. ATTRNOTSUPP for what nothing here can keep: types but ALLOW and DENY, flags that go with these, NO_PROPAGATE and INHERIT_ONLY of
/// what nobody inherits (8881 6.2.1.4.1); INVAL for what no RFC has, and for an empty `who`; BADOWNER for an unknown one. INHERITED_ACE is left out, as it is not for this attribute.
nfsstat4 from_ace(const nfsace4& from, storage::ace& to) noexcept;
/// The ACL of attributes that decode_settable() has passed, if there is one, into `list`, to which `to` then points.
nfsstat4 from_acl(const attributes& from, storage::access_list& list, storage::set_attributes& to);
/// from_attributes() (storage.hpp) and from_acl(), for all that a client may set.
nfsstat4 from_settable(const attributes& from, storage::set_attributes& to, storage::access_list& list);

/// The status that answers a back end's failure of an operation that sets `what`: with an ACL among it ATTRNOTSUPP for EOPNOTSUPP, and FBIG for E2BIG.
nfsstat4 status_of_setting(const error& failure, const storage::set_attributes& what) noexcept;

/// An ACL to be sent, with the texts that its entries point to.
class acl_values {
public:
    /// A copy of `list`, with the texts of its numbers.
    explicit acl_values(std::span<const storage::ace> list);
    acl_values(const acl_values&) = delete;

    /// The list, valid as long as this.
    acl_view view() const noexcept { return std::span<const nfsace4>(aces_); }
    /// Bytes on the wire, at most.
    std::size_t size() const noexcept { return 4 + aces_.size() * (4 * 4 + 12); }

private:
    std::vector<std::array<char, 10>> names_;
    std::vector<nfsace4> aces_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
