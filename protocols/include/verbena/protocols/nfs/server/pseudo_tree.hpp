// SPDX-License-Identifier: Apache-2.0
// The pseudo file system of version 4 (8881 7.3): directories that lead from the server's root to its exports.
#pragma once

#include <verbena/core/net/ip_address.hpp>
#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs {

struct export_options;

/// A directory on the way to an export, or the place where one begins.
struct pseudo_node {
    std::uint64_t fileid = 0; ///< what GETATTR says, and mounted_on_fileid of the export that begins here
    std::string name;
    const pseudo_node* parent = nullptr; ///< nullptr: the root
    const export_options* exported = nullptr;
    std::map<std::string, const pseudo_node*, std::less<>> children;
};

/// The directories above all exports, which clients of version 4 walk through (RFC 8881 7.3). Filled, then read
/// by any thread. An export_list has one.
class pseudo_tree {
public:
    pseudo_tree();
    /// What is in `before` keeps its number there, and no other one gets it. `changed`: in nanoseconds since 1970.
    pseudo_tree(const pseudo_tree& before, std::int64_t changed);
    pseudo_tree(const pseudo_tree&) = delete;
    /// `exported`, whose place is `path`, outlives it. `before`: the tree that this one was made to follow, or nullptr.
    void add(const export_options& exported, std::string_view path, const pseudo_tree* before);

    /// The directory above all exports.
    const pseudo_node& root() const noexcept { return nodes_.front(); }
    /// Where an export begins.
    const pseudo_node* of(const export_options& exported) const noexcept;
    /// What stands in the handle of such a directory, instead of a back end's.
    static storage::handle handle_of(const pseudo_node& node) noexcept;
    /// nullptr for a handle that is none of this tree's.
    const pseudo_node* by_handle(const storage::handle& inner) const noexcept;
    /// When the directories came to be as they are; 0: at the start.
    std::int64_t changed() const noexcept { return changed_; }

    /// In handles; no export has it.
    static constexpr std::uint32_t export_id = 0;

private:
    std::deque<pseudo_node> nodes_;
    std::uint64_t next_fileid_;
    std::int64_t changed_ = 0;
};

/// Whether the peer may see a directory: an export that it may use begins there or beneath. The root is seen by all.
bool is_visible(const pseudo_node& node, const rpc::peer& from, host_addresses& host);
/// The same, and the root is no exception.
bool is_visible_at_all(const pseudo_node& node, const rpc::peer& from, host_addresses& host);

} // namespace verbena::nfs

#pragma GCC visibility pop
