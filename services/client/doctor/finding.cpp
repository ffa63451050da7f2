// SPDX-License-Identifier: Apache-2.0
#include "finding.hpp"

#include "../commands.hpp"

#include "../../standard_output.hpp"
#include <verbena/core/printable.hpp>

namespace verbena::cli {

namespace {

const char* word_of(verdict f)
{
    switch (f) {
    case verdict::good: return "ok";
    case verdict::hint: return "hint";
    case verdict::bad: return "problem";
    }
    return "?";
}

} // namespace

void report::add(const finding& f)
{
    is_bad_ |= f.result == verdict::bad;
    if (as_json_) {
        nlohmann::json item = {{"check", f.check}, {"state", word_of(f.result)}};
        put_text(item, "text", f.text);
        put_text(item, "cure", f.cure);
        if (!f.setting.empty())
            put_text(item, "setting", f.setting);
        if (!f.place.empty())
            put_text(item, "place", f.place);
        all_.push_back(std::move(item));
        return;
    }
    print("%-8s %-13s %s\n", f.result == verdict::bad ? "PROBLEM" : word_of(f.result),
          printable(f.check).c_str(), printable(f.text).c_str());
    if (f.result != verdict::good && !f.setting.empty())
        print("%-8s %-13s set by %s%s%s\n", "", "", f.setting.c_str(), f.place.empty() ? "" : " at ",
              printable(f.place).c_str());
    if (!f.cure.empty())
        print("%-8s %-13s cure: %s\n", "", "", printable(f.cure).c_str());
    flush_standard_output();
}

int report::finish()
{
    if (as_json_)
        print("%s\n", dump(all_).c_str());
    return is_bad_ ? exit_failed : exit_ok;
}

} // namespace verbena::cli
