// The proleptic Gregorian calendar, by the algorithms of Howard Hinnant
// (https://howardhinnant.github.io/date_algorithms.html). Days count from 1970-01-01; those of the
// years -262000 to 262000 are taken.
#pragma once
#include "common/functions.cuh"

struct CivilDate {
    i32 year, month, day;
};

WJ_DEVICE CivilDate civil_date(i32 days) {
    const i32 shifted = days + 719468;  // from 0000-03-01 on
    const i32 era = floor_divide(shifted, 146097);
    const i32 day_of_era = shifted - era * 146097;
    const i32 year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const i32 day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const i32 month_from_march = (5 * day_of_year + 2) / 153;
    const i32 month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    CivilDate date;
    date.year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
    date.month = month;
    date.day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    return date;
}

WJ_DEVICE i32 days_of_civil(i32 year, i32 month, i32 day) {
    const i32 shifted = year - (month <= 2 ? 1 : 0);
    const i32 era = floor_divide(shifted, 400);
    const i32 year_of_era = shifted - era * 400;
    const i32 day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

WJ_DEVICE i32 date_year(i32 days) { return civil_date(days).year; }
WJ_DEVICE i32 date_month(i32 days) { return civil_date(days).month; }
WJ_DEVICE i32 date_quarter(i32 days) { return (civil_date(days).month + 2) / 3; }
WJ_DEVICE i32 date_day(i32 days) { return civil_date(days).day; }
WJ_DEVICE i32 date_day_of_year(i32 days) { return days - days_of_civil(civil_date(days).year, 1, 1) + 1; }

// Monday is 0.
WJ_DEVICE i32 date_weekday(i32 days) { return days + 3 - 7 * floor_divide(days + 3, 7); }
WJ_DEVICE i32 date_day_of_week(i32 days) { return (date_weekday(days) + 1) % 7; }
WJ_DEVICE i32 date_iso_day_of_week(i32 days) { return date_weekday(days) + 1; }

// An ISO week belongs to the year of its Thursday.
WJ_DEVICE i32 date_iso_year(i32 days) { return date_year(days - date_weekday(days) + 3); }
WJ_DEVICE i32 date_week(i32 days) { return (date_day_of_year(days - date_weekday(days) + 3) - 1) / 7 + 1; }

// The first day of the unit in which a day lies.
WJ_DEVICE i32 date_first_of_week(i32 days) { return days - date_weekday(days); }
WJ_DEVICE i32 date_first_of_month(i32 days) { return days - civil_date(days).day + 1; }
WJ_DEVICE i32 date_first_of_quarter(i32 days) {
    const CivilDate date = civil_date(days);
    return days_of_civil(date.year, (date.month - 1) / 3 * 3 + 1, 1);
}
WJ_DEVICE i32 date_first_of_year(i32 days) { return days_of_civil(civil_date(days).year, 1, 1); }

// The day so many months later, at most the last of its month.
WJ_DEVICE i32 date_add_months(i32 days, i32 months) {
    const CivilDate date = civil_date(days);
    const i32 month = date.month - 1 + months;
    const i32 year = date.year + floor_divide(month, 12);
    const i32 first = days_of_civil(year, month - 12 * floor_divide(month, 12) + 1, 1);
    const i32 next = month + 1;
    const i32 length = days_of_civil(date.year + floor_divide(next, 12), next - 12 * floor_divide(next, 12) + 1, 1) - first;
    return first + (date.day < length ? date.day : length) - 1;
}
