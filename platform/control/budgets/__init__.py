"""What customers let themselves spend by the month, the week and the day: limits that refuse (hard)
or only tell (soft). The hard monthly limit of an organization, a project or a key is a column of
its row; all others are here. Billing counts against them."""
