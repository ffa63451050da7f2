// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/protocols/files/recovery.hpp>

#include <set>
#include <string>
#include <string_view>

namespace verbena::test {

/// The list of who may reclaim, in memory.
class kept_store final : public files::recovery_store {
public:
    task<result<void>> add(std::string_view key) override
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
    std::set<std::string> keys;
};

} // namespace verbena::test
