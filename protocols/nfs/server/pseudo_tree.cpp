// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/pseudo_tree.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>

namespace verbena::nfs {

namespace {

constexpr std::uint64_t first_fileid = 2;

} // namespace

pseudo_tree::pseudo_tree() : next_fileid_(first_fileid) { nodes_.emplace_back().fileid = next_fileid_++; }

pseudo_tree::pseudo_tree(const pseudo_tree& before, std::int64_t changed)
    : next_fileid_(before.next_fileid_), changed_(changed)
{
    nodes_.emplace_back().fileid = first_fileid;
}

// A client takes a directory whose number has changed for another one.
void pseudo_tree::add(const export_options& exported, std::string_view path, const pseudo_tree* before)
{
    pseudo_node* at = &nodes_.front();
    const pseudo_node* known = before != nullptr ? &before->nodes_.front() : nullptr;
    for (auto name = next_component(path); !name.empty(); name = next_component(path)) {
        if (known != nullptr) {
            const auto there = known->children.find(name);
            known = there != known->children.end() ? there->second : nullptr;
        }
        const auto found = at->children.find(name);
        if (found != at->children.end()) {
            at = const_cast<pseudo_node*>(found->second); // one of nodes_
            continue;
        }
        pseudo_node& made = nodes_.emplace_back();
        made.fileid = known != nullptr ? known->fileid : next_fileid_++;
        made.name = name;
        made.parent = at;
        at->children.emplace(made.name, &made);
        at = &made;
    }
    at->exported = &exported;
}

const pseudo_node* pseudo_tree::of(const export_options& exported) const noexcept
{
    const auto found = std::ranges::find_if(nodes_, [&](const pseudo_node& node) {
        return node.exported != nullptr && node.exported->id == exported.id;
    });
    return found == nodes_.end() ? nullptr : &*found;
}

// By path, not by number: the handle stays good when exports come and go.
storage::handle pseudo_tree::handle_of(const pseudo_node& node) noexcept
{
    std::array<std::byte, 8> bytes;
    std::uint64_t hash = 14695981039346656037U; // FNV-1a
    const auto add = [&hash](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U; };
    for (const pseudo_node* at = &node; at->parent != nullptr; at = at->parent) {
        for (const char c : at->name)
            add(c);
        add('/');
    }
    xdr::store_u64(bytes.data(), hash);
    return storage::handle(bytes);
}

const pseudo_node* pseudo_tree::by_handle(const storage::handle& inner) const noexcept
{
    const auto found =
        std::ranges::find_if(nodes_, [&](const pseudo_node& node) { return handle_of(node) == inner; });
    return found == nodes_.end() ? nullptr : &*found;
}

bool is_visible(const pseudo_node& node, const rpc::peer& from, host_addresses& host)
{
    return node.parent == nullptr || is_visible_at_all(node, from, host);
}

bool is_visible_at_all(const pseudo_node& node, const rpc::peer& from, host_addresses& host)
{
    if (node.exported != nullptr && check_access(*node.exported, from, host) == access_refusal::none)
        return true;
    return std::ranges::any_of(
        node.children, [&](const auto& child) { return is_visible_at_all(*child.second, from, host); });
}

} // namespace verbena::nfs
