// SPDX-License-Identifier: Apache-2.0
#include "shared_trees.hpp"

#include <algorithm>

namespace verbena::nfs {

namespace {

// A setting of the back end, so that not each export has it.
bool has_local_locks(const export_config& e)
{
    return e.values.find("local_locks") != nullptr && e.values.flag("local_locks");
}

} // namespace

std::string warning_of_shared_tree(const export_list& exports, std::span<const export_config> configs,
                                   std::size_t index)
{
    const auto& all = exports.all();
    const export_options& own = all[index];
    const auto first = std::size_t(std::ranges::find(all, own.space, &export_options::space) - all.begin());
    const auto differs = [&](const char* setting, const char* what) {
        return std::string(setting) + " is not that of " + all[first].pseudo +
               ", which is of the same tree: " + what + "; give both the same";
    };
    std::string text;
    if (own.local_writers != all[first].local_writers)
        text =
            differs("local_writers", "clients of one of them may not see what a process of this host writes");
    if (has_local_locks(configs[index]) != has_local_locks(configs[first]))
        text +=
            (text.empty() ? "" : "; ") +
            differs("local_locks", "what clients of either lock is locked for processes of this host, too");
    return text;
}

} // namespace verbena::nfs
