// SPDX-License-Identifier: Apache-2.0
// Users and groups that a test names.
#pragma once

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/nfs/user_names.hpp>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace verbena::test {

/// alice is 1000 and the group staff 50, unless a test says otherwise. Each lookup waits while it `is_slow`.
class named_accounts final : public nfs::v4::name_source {
public:
    using account = nfs::v4::account;
    using account_kind = nfs::v4::account_kind;

    task<result<std::string>> domain() override
    {
        ++domains_asked;
        co_await answers();
        if (domain_fails)
            co_return error(std::errc::io_error, "no answer");
        co_return own_domain;
    }
    task<result<std::optional<std::uint32_t>>> find_id(account_kind kind, std::string name) override
    {
        asked.push_back((kind == account_kind::user ? "u " : "g ") + name);
        co_await answers();
        if (throws)
            throw std::runtime_error("no answer");
        if (fails)
            co_return error(std::errc::io_error, "no answer");
        for (const auto& [who, called] : names) {
            if (who.kind == kind && called == name)
                co_return std::optional<std::uint32_t>(who.id);
        }
        co_return std::optional<std::uint32_t>();
    }
    task<result<std::optional<std::string>>> find_name(account who) override
    {
        asked.push_back((who.kind == account_kind::user ? "u " : "g ") + std::to_string(who.id));
        co_await answers();
        if (throws)
            throw std::runtime_error("no answer");
        if (fails)
            co_return error(std::errc::io_error, "no answer");
        const auto found = names.find(who);
        co_return found == names.end() ? std::optional<std::string>() : std::optional(found->second);
    }
    void be_slow() { slow_ = true; }
    /// What waits is answered, and what follows at once.
    void answer()
    {
        slow_ = false;
        goes_on_.set();
        goes_on_.reset();
    }

    std::map<account, std::string> names{{{account_kind::user, 1000}, "alice"},
                                         {{account_kind::group, 50}, "staff"}};
    std::string own_domain = "example.org";
    bool fails = false;        // lookups
    bool throws = false;       // likewise
    bool domain_fails = false; // and that
    int domains_asked = 0;
    std::vector<std::string> asked; // "u alice", "g 50"

private:
    task<void> answers()
    {
        while (slow_)
            co_await goes_on_.wait_shielded();
    }
    bool slow_ = false;
    event goes_on_;
};

} // namespace verbena::test
