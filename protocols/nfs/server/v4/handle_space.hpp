// SPDX-License-Identifier: Apache-2.0
// From handles and names to objects and back: who may use what, and where one export begins in another.
#pragma once

#include "object.hpp"

#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/caller_groups.hpp>
#include <verbena/protocols/nfs/server/covered.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/pseudo_tree.hpp>
#include <verbena/protocols/nfs/server/v4/counters.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbena::nfs::v4 {

/// One shard's. Each question names the call that asks, since a handle says what a peer may have learnt, not that it
/// may use it. Who is refused is counted here.
class handle_space {
public:
    /// All but `here`, the program's shard, are borrowed for as long as this lives; so are the shard's tasks.
    handle_space(const export_table& exports, const handle_key& key, const shard& here,
                 server_counters& counters);

    /// What a COMPOUND sees of exports lives as long as this.
    export_table::use begin_use() const noexcept { return exports_.begin_use(); }
    const pseudo_tree& tree() const noexcept { return exports_.places(); }

    // --- Peers

    /// Whether the peer may use some export.
    bool admits(const rpc::peer& from) { return is_for(exports_, from, host_); }
    /// The same, by what it would see of the pseudo file system.
    bool shows_anything_to(const rpc::peer& from) { return is_visible_at_all(tree().root(), from, host_); }
    /// Tells that shows_anything_to() is false.
    void refuse(const rpc::peer& from);
    /// How many of the directories in `node` the peer may see.
    std::size_t visible_in(const pseudo_node& node, const rpc::peer& from);

    // --- Handles

    /// Has find() and find_exported() know the groups of the caller, for want of which they were delay (manage_gids).
    task<void> learn_groups(const rpc::call& c);
    nfsstat4 find(const rpc::call& c, std::span<const std::byte> wire, object& to);
    nfsstat4 find_exported(const rpc::call& c, std::uint32_t export_id, const storage::handle& file,
                           object& to);
    bool sign(const object& of, file_handle& to) const noexcept;

    // --- Places of the pseudo file system

    task<nfsstat4> enter_root(const rpc::call& c, object& to)
    {
        return enter_with_groups(c, tree().root(), to);
    }
    /// Into what stands at a place: the export that begins there, if the peer may use it.
    nfsstat4 enter(const rpc::call& c, const pseudo_node& node, object& to);
    /// Likewise, when the groups of the caller have been looked up if need be.
    task<nfsstat4> enter_with_groups(const rpc::call& c, const pseudo_node& node, object& to);
    /// Where an export begins.
    const pseudo_node* place_of(const export_options& exported) const noexcept { return tree().of(exported); }

    // --- Names

    /// `searched`: what the directory was like right before, where the back end has told it with the name.
    task<nfsstat4> find_child(const rpc::call& c, const object& directory, std::string_view name, object& to,
                              std::optional<storage::attributes>* searched = nullptr);
    task<nfsstat4> find_parent(const rpc::call& c, const object& of, object& to);

    // --- Exports within exports

    bool has_nested(const object& directory) const noexcept
    {
        return exports_.has_nested(*directory.exported);
    }
    /// Has may_lead_on(), place_of_entry() and may_change() know what is covered of the export now.
    task<void> look(const object& directory) { return covered_.look(*directory.exported); }
    /// Has covered_number() know what the export of `root` covers, in time.
    task<void> look_around(const object& root);
    /// The number of the directory that the export of `root` covers; 0 if it covers none, or none is known.
    std::uint64_t covered_number(const object& root) const noexcept
    {
        return covered_.number_of(*root.exported);
    }
    /// Whether an entry of `directory` may be the place of another export, or lead to one.
    bool may_lead_on(const object& directory) const noexcept;
    /// The place of the export that covers an entry of `directory`, by its name or its handle; nullptr if none does.
    const pseudo_node* place_of_entry(const object& directory,
                                      const storage::directory_entry& entry) const noexcept;
    /// Whether a name in `directory` may come to mean something else: moved elsewhere, what another export covers
    /// would be reached by this one's rules.
    task<nfsstat4> may_change(const object& directory, std::string_view name);

private:
    /// Tells that the peer may see nothing at `node`: by the rule of the first export there.
    void refuse(const pseudo_node& node, const rpc::peer& from);
    void refuse(const export_options& exported, access_refusal why, const rpc::peer& from) noexcept;
    /// Makes `to` stand for something of `exported`, as whom the caller acts there; `to.file` says what. delay, and no
    /// export: the groups of the caller are not known. serverfault: for so long that nobody should come again.
    nfsstat4 set_export(const rpc::call& c, const export_options& exported, object& to);
    /// The place of an export that begins by `name` in `directory`, the root of another one; else nullptr.
    const pseudo_node* nested_at(const object& directory, std::string_view name) const noexcept;
    task<nfsstat4> enter_nested(const rpc::call& c, const pseudo_node& place, object& to);
    /// The place of the export that covers `directory`, found in its export under whatever name; nullptr if none does.
    task<const pseudo_node*> place_covering(const object& directory, const storage::attributes* attrs);
    task<nfsstat4> find_parent_of_export(const rpc::call& c, const pseudo_node& place, object& to);

    const export_table& exports_;
    const handle_key& key_;
    server_counters& counters_;
    covered_directories covered_;
    caller_groups groups_;
    host_addresses host_;
};

} // namespace verbena::nfs::v4
