// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/protocols/files/recovery.hpp>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

/// The list of who may reclaim, in memory.
class kept_store final : public files::recovery_store {
public:
    task<result<void>> add(std::string_view key, files::share) override
    {
        keys.insert(std::string(key));
        co_return result<void>();
    }
    task<result<void>> remove(std::string_view key) override
    {
        keys.erase(std::string(key));
        co_return result<void>();
    }
    task<result<void>> end_grace() override { co_return result<void>(); }
    /// Each may have kept others out.
    std::vector<files::reclaimer> reclaimers() const
    {
        std::vector<files::reclaimer> out;
        for (const std::string& key : keys)
            out.push_back({key});
        return out;
    }
    std::set<std::string> keys;
};

} // namespace verbena::test
